import { expect, test } from 'vitest'
import { connect, diagnose, type Finding } from '../../../src/index.ts'
import { MEMBER_CHECKS, type MemberFacts } from '../../../src/stores/etcd/doctor-checks.ts'
import { base64, startEtcd, startEtcdCluster } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'

test('the doctor finds nothing wrong with an etcd of three members that are all named', async () => {
  await using cluster = await startEtcdCluster()
  const url = `etcd://${hosts(cluster.urls).join(',')}`
  const { store, findings } = await diagnose(url)
  expect({ store, wrong: wrongBesideVersion(findings) }).toEqual({ store: 'etcd', wrong: [] })
  for (const host of hosts(cluster.urls)) {
    expect(findings.filter(({ where }) => where === host).map(({ check }) => check)).toEqual([
      ...['version', 'role', 'alarms', 'space'],
    ])
  }
  expect(findings.filter(({ where }) => where === undefined).map(({ check }) => check)).toEqual([
    ...['connection', 'round trip', 'messages', 'listing'],
    ...['members', 'quorum', 'rights', 'shortest ttl', 'clock'],
  ])
  expect(findings.filter(({ text }) => text.startsWith('It leads, and answers in '))).toHaveLength(1)

  const some = await diagnose(`etcd://${hosts(cluster.urls)[0]}`)
  expect(wrongBesideVersion(some.findings)).toEqual([
    { check: 'members', verdict: 'warning', text: expect.stringContaining('names 1 of 3 members') },
  ])

  await cluster.members[0]?.kill()
  // The killed member may have been the leader.
  const then = await until('the two others have a leader', async () => {
    const found = await diagnose(url)
    return found.verdict !== 'problem' && found
  })
  expect(wrongBesideVersion(then.findings)).toEqual([
    expect.objectContaining({ check: 'connection', where: hosts(cluster.urls)[0], verdict: 'warning' }),
    { check: 'quorum', verdict: 'warning', text: expect.stringContaining('2 of 3 members answer, so none') },
  ])

  await cluster.members[1]?.kill()
  const alone = await diagnose(url)
  expect(alone.verdict).toBe('problem')
  expect(alone.findings).toContainEqual({
    check: 'quorum',
    verdict: 'problem',
    text: '1 of 3 members answer, and 2 have to. Bring the others back.',
  })
})

test('the doctor tells of a database that takes no writes, and of two clusters in one URL', async () => {
  await using server = await startEtcd()
  await using other = await startEtcd()
  const [host] = hosts([server.url])
  await server.call('/v3/maintenance/alarm', { action: 'ACTIVATE', memberID: '0', alarm: 'NOSPACE' })
  const full = await diagnose(`etcd://${host}`)
  expect(full.verdict).toBe('problem')
  expect(wrong(full.findings)).toEqual(
    expect.arrayContaining([
      { check: 'alarms', where: host, verdict: 'problem', text: expect.stringContaining('alarm disarm') },
    ]),
  )
  const two = await diagnose(`etcd://${hosts([server.url, other.url]).join(',')}`)
  expect(two.findings).toContainEqual({
    check: 'members',
    verdict: 'problem',
    text: expect.stringContaining('different clusters'),
  })
})

test('the doctor needs no other right than the store, and tells of a user who may only read', async () => {
  await using server = await startEtcd({
    args: ['--election-timeout', '4000', '--heartbeat-interval', '400'],
  })
  const token = await server.enableAuth('root')
  const grant = async (user: string, permType: string): Promise<string> => {
    const perm = { permType, key: base64('holdfast/'), range_end: base64('holdfast0') }
    await server.call('/v3/auth/role/add', { name: user }, { token })
    await server.call('/v3/auth/role/grant', { name: user, perm }, { token })
    await server.call('/v3/auth/user/add', { name: user, password: 'sesame' }, { token })
    await server.call('/v3/auth/user/grant', { user, role: user }, { token })
    return `etcd://${user}:sesame@${hosts([server.url])[0]}`
  }
  const writer = await diagnose(await grant('writer', 'READWRITE'))
  expect(wrong(writer.findings)).toEqual([
    { check: 'shortest ttl', verdict: 'warning', text: expect.stringContaining('--election-timeout') },
  ])
  const reader = await diagnose(await grant('reader', 'READ'))
  expect(wrong(reader.findings)).toContainEqual({
    check: 'rights',
    verdict: 'problem',
    text: expect.stringContaining('Grant its role readwrite'),
  })
  expect(JSON.stringify([writer, reader])).not.toContain('sesame')
})

test.each([
  ['changed to a lower number', '1 1600000000000000', 'problem', /fallen below/],
  ['changed to what is no number', 'x', 'problem', /holds something else/],
] as const)('the doctor finds a fence base that somebody has %s', async (_, value, verdict, text) => {
  await using server = await startEtcd()
  const url = `etcd://${hosts([server.url])[0]}`
  const locks = await connect(url)
  await (await locks.acquire('key')).release()
  await locks.close()
  expect(wrong((await diagnose(url)).findings)).toEqual([])
  await server.call('/v3/kv/put', { key: base64('holdfast/meta'), value: base64(value) })
  expect((await diagnose(url)).findings).toContainEqual({
    check: 'fence base',
    verdict,
    text: expect.stringMatching(text),
  })
})

test('the doctor says why there is no etcd', async () => {
  const { verdict, findings } = await diagnose('etcd://app:sesame@127.0.0.1:1')
  expect(verdict).toBe('problem')
  expect(findings).toEqual([
    {
      check: 'connection',
      verdict: 'problem',
      text: expect.stringContaining('No etcd member could be reached'),
    },
  ])
})

const VOTER = { id: 2, isLearner: false }

const WELL: MemberFacts = {
  cluster: 1,
  member: 2,
  version: '3.5.17',
  leader: 2,
  isLearner: false,
  sizeBytes: 20_480,
  usedBytes: 20_480,
  quotaBytes: 0,
  errors: [],
  roundTripMs: 0.5,
  known: [],
  named: 3,
}

test.each([
  [{}, undefined, undefined],
  [{ version: '3.3.27' }, 'version', 'problem'],
  [{ version: '3.5.2' }, 'version', 'warning'],
  [{ version: '3.5.12' }, 'version', 'warning'],
  [{ version: '3.5.13' }, undefined, undefined],
  [{ version: '3.4.30' }, 'version', 'warning'],
  [{ version: '3.4.31' }, undefined, undefined],
  [{ version: '3.6.0' }, undefined, undefined],
  [{ version: '3.4.30', known: [VOTER] }, undefined, undefined],
  [{ version: '3.4.30', named: 1 }, undefined, undefined],
  [{ version: '3.4.30', named: 1, known: [VOTER, { ...VOTER, id: 3 }] }, 'version', 'warning'],
  [{ version: '3.4.30', known: [VOTER, { id: 3, isLearner: true }] }, undefined, undefined],
  [{ isLearner: true }, 'role', 'warning'],
  [{ leader: 0 }, 'role', 'problem'],
  [{ errors: ['memberID:1 alarm:CORRUPT '] }, 'alarms', 'problem'],
  [{ sizeBytes: 1_900_000_000 }, 'space', 'warning'],
  [{ sizeBytes: 1_900_000_000, quotaBytes: 8 * 1024 ** 3 }, undefined, undefined],
  [{ sizeBytes: 90_000_000, quotaBytes: 100_000_000 }, 'space', 'warning'],
] as const)('the doctor says of a member with %o what is wrong: %s', (facts, check, verdict) => {
  const findings = MEMBER_CHECKS.flatMap((look) => look({ ...WELL, ...facts }) ?? [])
  expect(wrong(findings).map((finding) => [finding.check, finding.verdict])).toEqual(
    check === undefined ? [] : [[check, verdict]],
  )
})

function hosts(urls: readonly string[]): readonly string[] {
  return urls.map((url) => new URL(url).host)
}

/** The etcd of this machine may be an old one, of which the doctor warns where there are several members. */
function wrongBesideVersion(findings: readonly Finding[]): readonly Finding[] {
  return wrong(findings).filter(({ check }) => check !== 'version')
}

function wrong(findings: readonly Finding[]): readonly Finding[] {
  return findings.filter(({ verdict }) => verdict !== 'ok')
}
