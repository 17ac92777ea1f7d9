import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { expect, test } from 'vitest'
import { connect } from '../../../src/index.ts'
import { initRedlock } from '../../../src/stores/redlock/index.ts'
import { freePort } from '../../servers/free-port.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from './masters.ts'

const urlOf = (urls: readonly string[], query = '') => `redlock:${urls.join(',')}${query}`

test('the first lock on new servers comes at once if an operator has said that they are new', async () => {
  await using masters = await startMasters(3, { young: true })
  const url = urlOf(masters.urls, '?maxTtl=1h')
  expect(await initRedlock(url)).toEqual({ servers: 3, written: true })
  expect(await initRedlock(url)).toEqual({ servers: 3, written: false })
  await using locks = await connect(url)
  const lease = await locks.acquire('k', { wait: '5s' })
  expect(lease.fence).toBeGreaterThan(0n)
})

test('takes the clients and options of redlockStore, too', async () => {
  await using masters = await startMasters(3, { young: true })
  const [one = '', two = '', three = ''] = masters.urls
  const clients = [
    new Redis(one, { lazyConnect: true }),
    createClient({ url: two }),
    new Redis(three, { lazyConnect: true }),
  ]
  expect(await initRedlock(clients, { prefix: 'app:' })).toEqual({ servers: 3, written: true })
  const notes = masters.servers.map((server) => server.command('EXISTS', 'app:since'))
  expect(await Promise.all(notes)).toEqual([1, 1, 1])
  // Another prefix is another store.
  expect(await initRedlock(clients, { prefix: 'other:' })).toEqual({ servers: 3, written: true })
})

test('a server that does not answer may have been used, so nothing is written', async () => {
  await using masters = await startMasters(2, { young: true })
  const away = `redis://127.0.0.1:${await freePort()}`
  await expect(initRedlock(urlOf([...masters.urls, away]), { wait: 0 })).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringMatching(/^Redis server 3 of the list: .* Nothing was written\.$/),
  })
  for (const server of masters.servers) expect(await server.command('DBSIZE')).toBe(0)
})

test('waits for servers that are being started', async () => {
  await using masters = await startMasters(3, { young: true })
  const [, , late] = masters.servers
  await late?.stop()
  const begun = initRedlock(urlOf(masters.urls), { wait: '2m' })
  await late?.restart()
  expect(await begun).toEqual({ servers: 3, written: true })
})

test.each([
  ['a note of a process that has connected', 'holdfast:since', 'abc - 1795401633386', /number 2 of the list/],
  ['the last fence', 'holdfast:fence', '1795401633386664', /number 2 of the list/],
] as const)('%s shows that a server was used before', async (_, name, value, message) => {
  await using masters = await startMasters(3, { young: true })
  await masters.servers[1]?.command('SET', name, value)
  await expect(initRedlock(urlOf(masters.urls))).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringMatching(message),
  })
  for (const index of [0, 2]) expect(await masters.servers[index]?.command('DBSIZE')).toBe(0)
})

test('a room shows that a server was used before', async () => {
  await using masters = await startMasters(3, { young: true })
  const [first, second] = masters.servers
  await using locks = await connect(second?.url ?? '')
  await locks.acquire('k')
  await second?.command('DEL', 'holdfast:fence')
  await expect(initRedlock(urlOf(masters.urls))).rejects.toThrow('number 2 of the list')
  expect(await first?.command('DBSIZE')).toBe(0)
})

test('servers that a process has just used are refused, and the message says how long their votes take', async () => {
  await using masters = await startMasters(3, { young: true })
  const url = urlOf(masters.urls, '?maxTtl=1h')
  const locks = await connect(url)
  for (const server of masters.servers) {
    await until(
      'the process has met it',
      async () => (await server.command('EXISTS', 'holdfast:since')) === 1,
    )
  }
  await locks.close()
  await expect(initRedlock(url)).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringMatching(/used before, for less than `maxTtl`\. Their votes count in 60 min\.$/),
  })
})

test('may be called again after a call that has reached one server only', async () => {
  await using masters = await startMasters(3, { young: true })
  const [first] = masters.servers
  expect(await initRedlock(urlOf(masters.urls))).toMatchObject({ written: true })
  for (const server of masters.servers) if (server !== first) await server.command('FLUSHALL')
  expect(await initRedlock(urlOf(masters.urls))).toEqual({ servers: 3, written: true })
  await using locks = await connect(urlOf(masters.urls, '?maxTtl=1h'))
  expect((await locks.acquire('k', { wait: '5s' })).fence).toBeGreaterThan(0n)
})

test('a server that has restarted since is not taken for new', async () => {
  await using masters = await startMasters(3, { young: true })
  const [first, ...others] = masters.servers
  await initRedlock(urlOf(masters.urls))
  for (const server of others) await server.command('FLUSHALL')
  await first?.command('SAVE')
  await first?.restart()
  await expect(initRedlock(urlOf(masters.urls))).rejects.toThrow('number 1 of the list')
})

test('ends its requests to the other servers when one refuses', async () => {
  await using masters = await startMasters(1, { young: true })
  await using replica = await startRedis({ replicaOf: masters.servers[0] as never })
  const away = `redis://127.0.0.1:${await freePort()}`
  const before = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
  await expect(initRedlock(urlOf([replica.url, away]), { wait: '1h' })).rejects.toThrow('server 1')
  await until('no timer is left', () => {
    return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length <= before
  })
})

test('changes nothing while most votes count, also if one server has come back empty', async () => {
  await using masters = await startMasters(3)
  const [first] = masters.servers
  await first?.command('FLUSHALL')
  expect(await initRedlock(urlOf(masters.urls))).toEqual({ servers: 3, written: false })
  expect(await first?.command('DBSIZE')).toBe(0)
})

test('refuses one server that is in the list twice, and a replica', async () => {
  await using one = await startRedis()
  await using two = await startRedis()
  const twice = urlOf([one.url, two.url, one.url.replace('127.0.0.1', 'localhost')])
  await expect(initRedlock(twice)).rejects.toThrow(/numbers 1 and 3 of the list are the same/)
  await using replica = await startRedis({ replicaOf: one })
  await expect(initRedlock(urlOf([one.url, two.url, replica.url]))).rejects.toThrow(/server 3 .* replica/)
  expect(await two.command('DBSIZE')).toBe(0)
})

test('refuses what is no url, no client and no option', async () => {
  await expect(initRedlock('redis://a')).rejects.toThrow(/like redlock:/)
  await expect(initRedlock([])).rejects.toThrow(/array of 1 to 31 clients/)
  await expect(initRedlock('redlock:redis://a', { fences: true } as never)).rejects.toThrow(
    /`wait`, got `fences`/,
  )
  await expect(initRedlock('redlock:redis://a?prefix=app:,redis://b,redis://c')).rejects.toThrow(
    /got `prefix` behind server 1\. Only maxTtl and prefix may stand there, behind the last server/,
  )
  await expect(initRedlock('redlock:redis://a?maxTtl=long')).rejects.toThrow(/`maxTtl` to be a duration/)
})
