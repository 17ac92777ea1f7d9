import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { createLocks, diagnose } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../../servers/redis-cluster.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from '../redlock/masters.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'
import { newClusterClient } from './cluster/clients.ts'

const FENCE = 'holdfast:fence'

/** Values in the place of the last fence that are none. */
const foreign: readonly [string, readonly string[]][] = [
  ['2^53', ['SET', '9007199254740992']],
  ['a little less than that, too near to it', ['SET', '9000000000000000']],
  ['a number of 20 digits', ['SET', '99999999999999999999']],
  ['a text', ['SET', 'apples']],
  ['nothing but a key', ['SET', '']],
  ['a list', ['RPUSH', 'apples']],
]

function refusal(name: string): object {
  return {
    code: 'store-refused',
    message: expect.stringContaining(`The Redis key "${name}" should hold the last fence`),
  }
}

describe('on one server', () => {
  let server: RedisServer
  let store: Store
  beforeAll(async () => {
    server = await startRedis()
    store = redisStore(newClient(server.url))
  })
  afterAll(async () => {
    await store.close()
    await server.close()
  })

  async function put([command, value]: readonly string[]): Promise<unknown> {
    await server.command('DEL', FENCE)
    await server.command(command as string, FENCE, value as string)
    return look()
  }
  const look = async (): Promise<unknown> => [
    await server.command('TYPE', FENCE),
    await server.command('DUMP', FENCE),
  ]

  test.each(foreign)(
    '%s is refused by its name, nothing of it is changed, and no key is taken',
    async (_, what) => {
      await server.command('FLUSHALL')
      const before = await put(what)
      // A free key, several keys in one tick, and a key with a minimum hold: they take different ways in the script.
      const [one, ...several] = ['a', 'b', 'c'].map((key) => ticket({ key }))
      await expect(store.acquire(one as NonNullable<typeof one>)).rejects.toMatchObject(refusal(FENCE))
      for (const outcome of await Promise.allSettled(several.map((each) => store.acquire(each))))
        expect(outcome).toMatchObject({ status: 'rejected', reason: refusal(FENCE) })
      await expect(store.acquire(ticket({ minHoldMs: 10 }))).rejects.toMatchObject(refusal(FENCE))
      expect(await look()).toEqual(before)
      expect(await server.command('KEYS', '*')).toEqual([FENCE])
      await server.command('DEL', FENCE)
      for (const each of several) fenceOf(await store.acquire(each))
    },
  )

  test.each(foreign)('with %s a semaphore gives no permit, and its holders stay', async (_, what) => {
    await server.command('FLUSHALL')
    const holders = [ticket({ limit: 5 }), ticket({ limit: 5 })]
    for (const holder of holders) fenceOf(await store.acquire(holder))
    const room = () => server.command('ZRANGE', 'holdfast:{key}', '0', '-1')
    const before = [await room(), await put(what)]
    await expect(store.acquire(ticket({ limit: 5 }))).rejects.toMatchObject(refusal(FENCE))
    expect([await room(), await look()]).toEqual(before)
    for (const holder of holders) expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
    expect(await room()).toEqual([])
  })

  test.each(foreign)(
    'with %s a holder goes on and releases, a waiter is told why it gets no key, and nothing breaks',
    async (_, what) => {
      await server.command('FLUSHALL')
      const [holder, first, second] = [ticket(), ticket(), ticket()]
      const other = ticket({ key: 'other' })
      const fence = fenceOf(await store.acquire(holder))
      for (const each of [first, second]) await store.acquire(each)
      await store.acquire(other)
      await put(what)
      expect(await store.renew([holder, other, first])).toMatchObject([
        { tag: 'held', fence },
        { tag: 'held' },
        { tag: 'queued' },
      ])
      expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
      // It is this waiter's turn, but there is no fence.
      expect(await store.renew([first])).toEqual([{ tag: 'gone', evicted: false }])
      await expect(store.acquire(first)).rejects.toMatchObject(refusal(FENCE))
      await expect(store.acquire(ticket())).rejects.toMatchObject(refusal(FENCE))
      expect(await store.release(releaseOf(other))).toEqual({ was: 'held' })
      await server.command('SET', FENCE, String(fence))
      const next = fenceOf(await store.acquire(first))
      expect(next).toBeGreaterThan(fence)
      await store.release(releaseOf(first))
      expect(fenceOf((await store.renew([second]))[0])).toBeGreaterThan(next)
      await store.release(releaseOf(second))
      expect(await server.command('KEYS', '*')).toEqual([FENCE])
    },
  )

  test('a last fence between the time of the server and that is counted on from, one by one', async () => {
    await server.command('FLUSHALL')
    const ahead = 8_999_999_999_999_000n
    await server.command('SET', FENCE, String(ahead))
    const mine = ticket()
    expect(fenceOf(await store.acquire(mine))).toBe(ahead + 1n)
    const several = ['a', 'b'].map((key) => ticket({ key }))
    const fences = (await Promise.all(several.map((each) => store.acquire(each)))).map(fenceOf)
    expect(fences).toEqual([ahead + 2n, ahead + 3n])
    expect(await server.command('GET', FENCE)).toBe(String(ahead + 3n))
  })

  test('a waiter of the engine gets the sentence and leaves nothing behind', async () => {
    await server.command('FLUSHALL')
    await using locks = createLocks(redisStore(newClient(server.url)))
    const held = await locks.acquire('key')
    const waiting = locks.acquire('key', { wait: '60s' }).catch((error: unknown) => error)
    await until('it waits', async () => (await server.command('TYPE', 'holdfast:{key}')) === 'zset')
    await put(['SET', 'apples'])
    await held.release()
    expect(await waiting).toMatchObject(refusal(FENCE))
  })

  test('the doctor finds it', async () => {
    await put(['SET', '9007199254740992'])
    const { verdict, findings } = await diagnose(server.url)
    expect(verdict).toBe('problem')
    expect(findings).toContainEqual({
      check: 'last fence',
      verdict: 'problem',
      text: expect.stringContaining(`"${FENCE}"`),
    })
    await put(['RPUSH', 'apples'])
    expect((await diagnose(server.url)).findings).toContainEqual(
      expect.objectContaining({ check: 'last fence', verdict: 'problem' }),
    )
    await put(['SET', String((Date.now() + 3_600_000) * 1000)])
    expect((await diagnose(server.url)).findings).toContainEqual({
      check: 'last fence',
      verdict: 'warning',
      text: expect.stringMatching(/60 min ahead/),
    })
    await put(['SET', String(Date.now() * 1000)])
    expect((await diagnose(server.url)).findings.map(({ check }) => check)).not.toContain('last fence')
  })

  test.each([
    [
      'is lower than the fence of a holder',
      'lower',
      'problem',
      /keeps the last fence 5, and a holder has the higher one \d+\./,
    ],
    [
      'was deleted',
      'delete',
      'warning',
      /is missing, though a holder .* go on from the time of the server\.$/,
    ],
    [
      'was deleted after the clock was set back',
      'delete ahead',
      'problem',
      /is missing, .* so the next one is lower\./,
    ],
    ['is negative', 'negative', 'problem', /holds something else/],
  ] as const)(
    'the doctor finds that it %s, also as a user that may only read',
    async (_, what, verdict, text) => {
      await server.command('FLUSHALL')
      await server.command('ACL', 'SETUSER', 'viewer', 'reset', 'on', '>secret', '+@read', '~holdfast:*')
      if (what === 'delete ahead') await server.command('SET', FENCE, String((Date.now() + 3_600_000) * 1000))
      const [lone, shared, waiter] = [ticket(), ticket({ key: 'busy' }), ticket({ key: 'busy' })]
      for (const each of [lone, shared, waiter]) await store.acquire(each)
      const looks = [
        () => diagnose(server.url),
        () => diagnose(`redis://viewer:secret@127.0.0.1:${server.port}`, { readOnly: true }),
      ]
      for (const look of looks)
        expect(
          (await look()).findings.filter(
            ({ check, verdict }) => check === 'last fence' && verdict === 'problem',
          ),
        ).toEqual([])
      if (what.startsWith('delete')) await server.command('DEL', FENCE)
      else await server.command('SET', FENCE, what === 'lower' ? '5' : '-5')
      for (const look of looks)
        expect((await look()).findings).toContainEqual({
          check: 'last fence',
          verdict,
          text: expect.stringMatching(text),
        })
      await server.command('DEL', FENCE)
      for (const each of [lone, shared, waiter]) await store.release(releaseOf(each))
      expect((await diagnose(server.url)).findings.map(({ check }) => check)).not.toContain('last fence')
    },
  )
})

describe('on a cluster', () => {
  let cluster: RedisCluster
  beforeAll(async () => {
    cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  })
  afterAll(() => cluster.close())

  test('the key of the slot is named, other slots go on, and the doctor finds it', async () => {
    const store = redisStore(newClusterClient(cluster))
    const mine = ticket({ key: 'a' })
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
    const master = await cluster.masterOf('holdfast:{a}')
    const [name] = (await master.command('KEYS', 'holdfast:{*}fence')) as [string]
    await master.command('SET', name, '9007199254740992')
    await expect(store.acquire(mine)).rejects.toMatchObject(refusal(name))
    fenceOf(await store.acquire(ticket({ key: 'b' })))
    const { findings } = await diagnose(cluster.url)
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: 'last fence',
        verdict: 'problem',
        text: expect.stringContaining(name),
      }),
    )
    await master.command('DEL', name)
    await store.close()
  })

  test('the doctor compares each holder with the last fence of its slot', async () => {
    const store = redisStore(newClusterClient(cluster))
    const [one, other] = [ticket({ key: 'one' }), ticket({ key: 'other' })]
    for (const each of [one, other]) fenceOf(await store.acquire(each))
    expect((await diagnose(cluster.url)).findings.map(({ check }) => check)).not.toContain('last fence')
    const master = await cluster.masterOf('holdfast:{one}')
    const slot = await master.command('CLUSTER', 'KEYSLOT', 'holdfast:{one}')
    const names = (await master.command('KEYS', 'holdfast:{*}fence')) as string[]
    const slots = await Promise.all(names.map((name) => master.command('CLUSTER', 'KEYSLOT', name)))
    const name = names[slots.indexOf(slot)] as string
    await master.command('SET', name, '5')
    const found = (await diagnose(cluster.url)).findings.filter(({ check }) => check === 'last fence')
    expect(found).toMatchObject([
      { verdict: 'problem', text: expect.stringContaining(`${name}" keeps the last fence 5,`) },
    ])
    for (const each of [one, other]) await store.release(releaseOf(each))
    await store.close()
  })
})

test('of several masters, one is left out with a warning and a majority refuses', async () => {
  await using masters = await startMasters(3)
  const store = masters.store()
  const warnings: string[] = []
  const hear = ({ message }: Error): unknown => warnings.push(message)
  process.on('warning', hear)
  const set = (at: number): Promise<unknown> | undefined =>
    masters.servers[at]?.command('SET', FENCE, '9007199254740992')
  await set(0)
  const mine = ticket({ ttlMs: 10_000, acceptMs: 10_000 })
  const fence = fenceOf(await store.acquire(mine))
  expect(fence).toBeLessThan(9_000_000_000_000_000n)
  await store.release(releaseOf(mine))
  const warning = /^Redis server 1 of 3 does not take part: The Redis key "holdfast:fence"/
  await until('it is warned of', () => warnings.some((text) => warning.test(text)))
  await set(1)
  await expect(store.acquire(ticket({ ttlMs: 10_000, acceptMs: 10_000 }))).rejects.toMatchObject(
    refusal(FENCE),
  )
  process.off('warning', hear)
  await store.close()
})
