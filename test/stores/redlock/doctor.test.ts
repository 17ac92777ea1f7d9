import { expect, test } from 'vitest'
import { diagnose, type Finding } from '../../../src/index.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { startMasters } from './masters.ts'

/** All servers are on one host here, so the doctor always has this finding. Nobody should run redlock like that. */
const SAME_HOST = 'hosts'

test('the doctor looks at each of several servers, and at the majority they make', async () => {
  await using masters = await startMasters(3, { appendOnly: true })
  const { store, findings } = await diagnose(urlOf(masters.urls))
  expect(store).toBe('redlock')
  expect(wrong(findings)).toEqual([])
  for (const { port } of masters.servers) {
    const checks = findings.filter(({ where }) => where === `127.0.0.1:${port}`).map(({ check }) => check)
    expect(checks).toEqual(['version', 'role', 'eviction', 'persistence', 'clock', 'vote'])
  }
  expect(findings).toContainEqual({
    check: 'quorum',
    verdict: 'ok',
    text: '3 of 3 servers answer: 1 more may be lost.',
  })

  await masters.servers[2]?.kill()
  const then = await diagnose(urlOf(masters.urls))
  expect(wrong(then.findings)).toEqual([
    expect.objectContaining({ check: 'connection', where: `127.0.0.1:${masters.servers[2]?.port}` }),
    expect.objectContaining({
      check: 'quorum',
      text: expect.stringContaining('none of them may be lost now'),
    }),
  ])

  await masters.servers[1]?.kill()
  const alone = await diagnose(urlOf(masters.urls))
  expect(alone.findings).toContainEqual(expect.objectContaining({ check: 'quorum', verdict: 'problem' }))
})

test('the doctor reports servers that may have forgotten a holder, and what makes them forget', async () => {
  await using masters = await startMasters(3, { young: true })
  const [first, second] = masters.servers
  await first?.command('CONFIG', 'SET', 'maxmemory', '50mb')
  await first?.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
  await second?.command('ACL', 'SETUSER', 'default', '-info')
  const { findings } = await diagnose(urlOf(masters.urls))
  const at = (index: number): string => `127.0.0.1:${masters.servers[index]?.port}`
  expect(wrong(findings)).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ check: 'eviction', where: at(0), verdict: 'problem' }),
      expect.objectContaining({ check: 'settings', where: at(1), text: expect.stringContaining('+info') }),
      expect.objectContaining({ check: 'vote', where: at(2), text: expect.stringContaining('counts in') }),
      expect.objectContaining({ check: 'votes', text: expect.stringContaining('0 of 3 servers count now') }),
    ]),
  )
})

test('the doctor takes `maxTtl` and `prefix` from the url', async () => {
  await using masters = await startMasters(3)
  const { findings } = await diagnose(`${urlOf(masters.urls)}?prefix=app:&maxTtl=24h`)
  // The rooms with another prefix have a note of their own, and so these servers are new.
  expect(wrong(findings)).toContainEqual(
    expect.objectContaining({ check: 'vote', text: expect.stringContaining('with a `maxTtl` of 1440 min') }),
  )
})

test('the doctor reports a replica in the list, one server that is there twice, and an even number of servers', async () => {
  await using masters = await startMasters(2)
  await using replica = await startRedis({ replicaOf: masters.servers[0] as never })
  const { verdict, findings } = await diagnose(urlOf([...masters.urls, replica.url]))
  expect(verdict).toBe('problem')
  expect(findings).toContainEqual({
    check: 'role',
    where: `127.0.0.1:${replica.port}`,
    verdict: 'problem',
    text: expect.stringContaining('makes two votes of one'),
  })
  expect(findings).toContainEqual({
    check: 'role',
    where: `127.0.0.1:${masters.servers[0]?.port}`,
    verdict: 'warning',
    text: expect.stringContaining('has 1 replica'),
  })
  const [one = '', two = ''] = masters.urls
  const twice = await diagnose(urlOf([one, one.replace('127.0.0.1', 'localhost'), two]))
  expect(twice.findings[0]).toMatchObject({ check: 'connection', verdict: 'problem' })
  const even = await diagnose(urlOf(masters.urls))
  expect(even.findings).toContainEqual(
    expect.objectContaining({ check: 'quorum', text: expect.stringContaining('An even number') }),
  )
})

test('the doctor holds each server against a user without rights, and shows no password', async () => {
  await using masters = await startMasters(3)
  const [first] = masters.servers
  await first?.command('CONFIG', 'SET', 'appendonly', 'yes')
  await first?.command(
    'ACL',
    'SETUSER',
    'locks',
    'on',
    '>sesame',
    '+@all',
    '-subscribe',
    '-config',
    '~*',
    '&*',
  )
  const [, second = '', third = ''] = masters.urls
  const url = urlOf([`redis://locks:sesame@127.0.0.1:${first?.port}`, second, third])
  const { findings } = await diagnose(url)
  expect(wrong(findings)).toContainEqual(
    expect.objectContaining({ check: 'messages', where: `127.0.0.1:${first?.port}`, verdict: 'warning' }),
  )
  expect(wrong(findings)).toContainEqual(
    expect.objectContaining({
      check: 'persistence',
      where: `127.0.0.1:${first?.port}`,
      text: expect.stringMatching(/^The doctor could not look at appendfsync/),
    }),
  )
  expect(JSON.stringify(findings)).not.toContain('sesame')
})

function urlOf(urls: readonly string[]): string {
  return `redlock:${urls.join(',')}`
}

function wrong(findings: readonly Finding[]): readonly Finding[] {
  return findings.filter(({ verdict, check }) => verdict !== 'ok' && check !== SAME_HOST)
}
