import { describe, expect, test } from 'vitest'
import { diagnose, type Finding } from '../../../src/index.ts'
import { SERVER_CHECKS, type ServerSetting } from '../../../src/stores/redis/server/doctor-checks.ts'
import { PATIENT_MASTERS, startCluster } from '../../servers/redis-cluster.ts'
import { PATIENT_SENTINELS, startSentinels } from '../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { readProjectFile } from '../../tidy/project.ts'

describe('the doctor, about a Redis server', () => {
  test('finds nothing wrong with a server that keeps every grant and evicts nothing', async () => {
    await using server = await startRedis({ appendOnly: true })
    const { store, verdict, findings } = await diagnose(server.url)
    expect({ store, verdict }).toEqual({ store: 'redis', verdict: 'ok' })
    const checks = ['connection', 'round trip', 'messages', 'listing', 'version', 'role', 'eviction']
    expect(findings.map(({ check }) => check)).toEqual([...checks, 'persistence', 'clock'])
  })

  test('names the others whose keys SCAN shows, and says which of them are locks', async () => {
    await using server = await startRedis({ appendOnly: true })
    for (const key of ['cache:1', 'cache:2', 'session:{7}:x', 'plain', 'holdfast:{own}'])
      await server.command('SET', key, 'x')
    await server.command('SET', 'billing:{invoice}', 'x')
    const { findings } = await diagnose(server.url)
    const text = textOf(findings, 'tenants') ?? ''
    expect(/under (.*)\. What fills/.exec(text)?.[1]?.split(', ').sort()).toEqual([
      ...['billing: (locks of Holdfast)', 'cache:', 'plain', 'session:'],
    ])
    await using other = await startRedis({ appendOnly: true, args: ['--databases', '2'] })
    await other.command('SET', 'holdfast:{own}', 'x')
    expect(textOf((await diagnose(other.url)).findings, 'tenants')).toBeUndefined()
  })

  test('says what the server said', async () => {
    await using server = await startRedis()
    await server.command('ACL', 'SETUSER', 'nobody', 'on', '>secret', '+ping')
    const { findings } = await diagnose(`redis://nobody:secret@127.0.0.1:${server.port}`)
    expect(textOf(findings, 'connection')).toMatch(/may not do what the store has to do.* Cause: .*NOPERM/)
  })

  const wrong: [string, readonly string[], Pick<Finding, 'check' | 'verdict'>, RegExp][] = [
    [
      'evicts keys',
      ['--maxmemory-policy', 'allkeys-lru', '--maxmemory', '50mb'],
      { check: 'eviction', verdict: 'problem' },
      /allkeys-lru locks vanish .* Set maxmemory-policy noeviction/,
    ],
    [
      'would evict keys with an expiry',
      ['--maxmemory-policy', 'volatile-ttl'],
      { check: 'eviction', verdict: 'warning' },
      /volatile-ttl .* once a maxmemory is set/,
    ],
    [
      'keeps nothing',
      [],
      { check: 'persistence', verdict: 'warning' },
      /forgets all locks.*Set appendonly yes/,
    ],
    [
      'keeps snapshots',
      ['--save', '60 1'],
      { check: 'persistence', verdict: 'warning' },
      /since its last snapshot/,
    ],
    [
      'writes its log every second',
      ['--appendonly', 'yes', '--appendfsync', 'everysec'],
      { check: 'persistence', verdict: 'warning' },
      /the last second of locks/,
    ],
    [
      'leaves its log to the kernel',
      ['--appendonly', 'yes', '--appendfsync', 'no'],
      { check: 'persistence', verdict: 'warning' },
      /half a minute of locks/,
    ],
    [
      'has no memory left',
      ['--maxmemory', '900kb'],
      { check: 'memory', verdict: 'problem' },
      /Raise maxmemory/,
    ],
    [
      'is part of a cluster',
      ['--cluster-enabled', 'yes'],
      { check: 'role', verdict: 'problem' },
      /part of a cluster/,
    ],
  ]
  test.each(wrong)('reports a server that %s', async (_, args, expected, text) => {
    await using server = await startRedis({ args })
    const { verdict, findings } = await diagnose(server.url)
    expect(findings).toContainEqual({ ...expected, text: expect.stringMatching(text) })
    if (expected.verdict === 'problem') expect(verdict).toBe('problem')
  })

  test('reports a replica, and the server that it follows', async () => {
    await using server = await startRedis()
    await using replica = await startRedis({ replicaOf: server })
    const { findings } = await diagnose(replica.url)
    expect(textOf(findings, 'connection')).toMatch(/read-only replica/)
    expect(textOf(findings, 'role')).toContain(`replica of 127.0.0.1:${server.port} `)
  })

  test('needs no other right than the store, and says what it cannot see', async () => {
    await using server = await startRedis()
    const url = await user(server)
    const { verdict, findings } = await diagnose(url)
    expect(verdict).toBe('warning')
    expect(findings.filter((finding) => finding.verdict !== 'ok')).toEqual([
      { check: 'settings', verdict: 'warning', text: expect.stringContaining('+info and +config|get') },
    ])
  })

  test.each([
    [[], /could not look for snapshots, because .* forgets the locks since its last snapshot, or all locks/],
    [['--appendonly', 'yes'], /could not look at appendfsync, because .* may forget the last locks/],
  ])('says that it could not look at the settings of a server with %o', async (args, text) => {
    await using server = await startRedis({ args })
    const { findings } = await diagnose(await user(server, '+info'))
    expect(findings.filter(({ verdict }) => verdict !== 'ok')).toEqual([
      { check: 'persistence', verdict: 'warning', text: expect.stringMatching(text) },
    ])
  })

  test.each([
    ['-subscribe', 'messages', 'warning', /^Waiters cannot be woken/],
    ['-scan', 'listing', 'warning', /Keys cannot be listed/],
    ['-zadd', 'connection', 'problem', /docs\/redis.md/],
    ['-publish', 'publishing', 'warning', /Grant it \+publish/],
    ['resetchannels', 'publishing', 'warning', /Grant it \+publish/],
    ['resetchannels', 'messages', 'warning', /^Waiters cannot be woken/],
  ])('reports a user with %s', async (change, check, verdict, text) => {
    await using server = await startRedis()
    const { findings } = await diagnose(await user(server, change))
    expect(findings).toContainEqual({ check, verdict, text: expect.stringMatching(text) })
  })

  test('says why there is no connection, and no secret', async () => {
    await using server = await startRedis({ password: 'sesame' })
    const diagnosis = await diagnose(`redis://:sesami@127.0.0.1:${server.port}`)
    expect(diagnosis).toEqual({
      store: 'redis',
      verdict: 'problem',
      findings: [
        { check: 'connection', verdict: 'problem', text: expect.stringMatching(/user name and password/) },
      ],
    })
    expect(JSON.stringify(diagnosis)).not.toContain('sesam')
    const away = await diagnose('redis://127.0.0.1:1')
    expect(away.findings).toMatchObject([{ check: 'connection', text: /could not be reached/ }])
  })

  test('waits for a server that hangs no longer than some seconds', async () => {
    await using server = await startRedis()
    await server.pause()
    const { findings } = await diagnose(server.url)
    expect(findings).toMatchObject([
      { check: 'connection', verdict: 'problem', text: /not answer within 5 s/ },
    ])
    server.resume()
  })
})

test('the doctor says that it could not look at a Redis server, where the store works', async () => {
  await using server = await startRedis({ appendOnly: true })
  // Only the doctor asks for settings.
  await using proxy = await startProxy({ targetPort: server.port })
  proxy.silenceAt(/CONFIG/)
  const { verdict, findings } = await diagnose(`redis://127.0.0.1:${proxy.port}`)
  expect(verdict).toBe('warning')
  expect(findings).toMatchObject([
    ...['connection', 'round trip', 'messages', 'listing'].map((check) => ({ check, verdict: 'ok' })),
    { check: 'server', verdict: 'warning', text: /^The doctor could not look/ },
  ])
})

test('the doctor looks at a distant Redis server with many keys in time', async () => {
  await using server = await startRedis({ appendOnly: true })
  await server.command('EVAL', "for at = 1, 80000 do redis.call('SET', 'a:' .. at, '') end", '0')
  await using proxy = await startProxy({ targetPort: server.port })
  proxy.delay({ replyMs: 80 })
  const { findings } = await diagnose(`redis://127.0.0.1:${proxy.port}`)
  const checks = findings.map(({ check }) => check)
  expect(checks).not.toContain('server')
  expect(checks).toEqual(expect.arrayContaining(['eviction', 'persistence', 'clock', 'tenants']))
})

describe('the doctor, about Sentinels', () => {
  test('looks at each Sentinel, at the master and at its replicas', async () => {
    await using group = await startSentinels(PATIENT_SENTINELS)
    const [master, replica] = group.servers as [RedisServer, RedisServer]
    const at = (server: RedisServer | undefined): string => `127.0.0.1:${server?.port}`
    const { verdict, findings } = await diagnose(group.url)
    expect(verdict).toBe('warning')
    const of = (where: string | undefined): string[] =>
      findings
        .filter((finding) => finding.where === where)
        .map((finding) => `${finding.check} ${finding.verdict}`)
    for (const sentinel of group.sentinels) expect(of(at(sentinel))).toEqual(['sentinel ok'])
    expect(of(at(master))).toEqual(
      expect.arrayContaining([
        'role ok',
        'eviction ok',
        'persistence warning',
        'isolation warning',
        'clock ok',
      ]),
    )
    expect(of(at(replica))).toEqual(expect.arrayContaining(['role ok', 'eviction ok', 'clock ok']))
    expect(of(undefined)).toEqual(expect.arrayContaining(['connection ok', 'quorum ok', 'clocks ok']))

    await replica.command('CONFIG', 'SET', 'maxmemory', '50mb')
    await replica.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    await master.command('CONFIG', 'SET', 'min-replicas-to-write', '1')
    await group.sentinels[0]?.kill()
    const then = await diagnose(group.url)
    expect(then.findings).toContainEqual({
      check: 'eviction',
      where: at(replica),
      verdict: 'problem',
      text: expect.stringContaining('allkeys-lru'),
    })
    expect(then.findings).toContainEqual({
      check: 'sentinel',
      where: at(group.sentinels[0]),
      verdict: 'warning',
      text: expect.stringContaining('could not be reached'),
    })
    expect(then.findings).toContainEqual({
      check: 'isolation',
      where: at(master),
      verdict: 'ok',
      text: 'It takes no writes with fewer than 1 replica.',
    })
    await replica.kill()
    const alone = await diagnose(group.url)
    expect(alone.findings).toContainEqual({
      check: 'role',
      where: at(master),
      verdict: 'problem',
      text: expect.stringContaining('no replica that could take over'),
    })
  })
})

test('the doctor, about a cluster, looks at its slots and at each of its servers', async () => {
  await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  const { verdict, findings } = await diagnose(cluster.url)
  expect(verdict).toBe('warning')
  expect(findings).toContainEqual({
    check: 'slots',
    verdict: 'ok',
    text: 'All slots are served, by 3 masters.',
  })
  for (const { port } of cluster.servers) {
    expect(findings).toContainEqual({
      check: 'role',
      where: `127.0.0.1:${port}`,
      verdict: 'warning',
      text: expect.stringContaining('no replica that could take over'),
    })
  }
  const blind = ['ACL', 'SETUSER', 'blind', 'on', '>secret', '~*', '&*', '+@all', '-cluster|info']
  for (const server of cluster.servers) await server.command(...blind)
  const unseen = { check: 'settings', verdict: 'warning', text: expect.stringContaining('CLUSTER INFO') }
  const { findings: seen } = await diagnose(cluster.url.replace('://', '://blind:secret@'))
  expect(seen).toContainEqual(expect.objectContaining(unseen))
  expect(findings).not.toContainEqual(expect.objectContaining(unseen))
  await cluster.servers[0]?.kill()
  const then = await diagnose(cluster.url)
  expect(then.findings).toContainEqual({
    check: 'connection',
    where: `127.0.0.1:${cluster.servers[0]?.port}`,
    verdict: 'warning',
    text: expect.stringContaining('could not be reached'),
  })
})

const WELL = {
  redis_version: '7.0.15',
  cluster_enabled: '0',
  role: 'master',
  connected_slaves: '0',
  maxmemory: '0',
  maxmemory_policy: 'noeviction',
  aof_enabled: '1',
  aof_last_write_status: 'ok',
  rdb_last_bgsave_status: 'ok',
}

// These cases need servers that a test cannot start: other versions, a clock of its own, a disk that fails.
test.each([
  [{}, {}, undefined, undefined],
  [{ redis_version: '6.2.0' }, {}, undefined, undefined],
  [{ redis_version: '6.0.16' }, {}, 'version', 'problem'],
  [{ redis_version: '5.0.14' }, {}, 'version', 'problem'],
  [{ redis_version: '7.2.4', valkey_version: '8.1.1' }, {}, undefined, undefined],
  [
    { redis_version: '6.2.14', cluster_enabled: '1', connected_slaves: '1' },
    { setting: 'cluster' },
    'version',
    'warning',
  ],
  [{}, { aheadMs: 1500 }, 'clock', 'warning'],
  [{}, { aheadMs: -90_000 }, 'clock', 'warning'],
  [{}, { aheadMs: 500 }, undefined, undefined],
  [{ role: 'slave', master_link_status: 'down' }, { setting: 'sentinel' }, 'role', 'warning'],
  [{ aof_last_write_status: 'err' }, {}, 'disk', 'problem'],
  [{ rdb_last_bgsave_status: 'err' }, {}, 'disk', 'problem'],
  [{ maxmemory: '1000', used_memory: '950' }, {}, 'memory', 'warning'],
] as const)(
  'the doctor says of a server with %o, %o what is wrong: %s, %s',
  (info, about, check, verdict) => {
    const { aheadMs = 0, setting = 'alone' }: { aheadMs?: number; setting?: ServerSetting } = about
    const facts = {
      info: new Map(Object.entries({ ...WELL, ...info })),
      settings: new Map([
        ['appendfsync', 'always'],
        ['save', ''],
      ]),
      clock: { aheadMs, errorMs: 1, roundTripMs: 1 },
      setting,
      isReplica: 'role' in info && info.role === 'slave',
      readOnly: false,
      lastFences: new Map(),
      tenants: new Map(),
      isMute: false,
    }
    const findings = SERVER_CHECKS.flatMap((look) => look(facts) ?? [])
    const wrong = findings.filter((finding) => finding.verdict !== 'ok' && finding.check !== 'isolation')
    expect(wrong.map((finding) => [finding.check, finding.verdict])).toEqual(
      check === undefined ? [] : [[check, verdict]],
    )
  },
)

function textOf(findings: readonly Finding[], check: string): string | undefined {
  return findings.find((finding) => finding.check === check)?.text
}

/** Makes the user of the documentation, with these changes. */
async function user(server: RedisServer, ...changes: string[]): Promise<string> {
  const [, rights = ''] =
    /^ACL SETUSER locks on >a-good-password (.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
  await server.command('ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', ...rights.split(' '), ...changes)
  return `redis://locks:secret@127.0.0.1:${server.port}`
}
