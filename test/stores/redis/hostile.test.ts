import { Cluster } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { type Store, UNLIMITED } from '../../../src/contract/store.ts'
import { createLocks, diagnose, isHoldfastError } from '../../../src/index.ts'
import {
  openRedis,
  openRedisCluster,
  openRedisSentinel,
  redisStore,
} from '../../../src/stores/redis/index.ts'
import { serverScripts } from '../../../src/stores/redis/scripts.ts'
import { RoomNames } from '../../../src/stores/redis/server/room-names.ts'
import { roomPage } from '../../../src/stores/redis/server/room-pages.ts'
import type { Partition, Scanned, Topology } from '../../../src/stores/redis/server/topology.ts'
import { openRedlock, redlockStore } from '../../../src/stores/redlock/index.ts'
import { bulk, list, startFakeRedis } from '../../servers/fake-redis.ts'
import { ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

const NEWLINES = '\n'.repeat(2_000_000)

/** Replies that are no answer, broken, or harmful. */
const replies: Readonly<Record<string, string>> = {
  '2 MB of newlines': bulk(NEWLINES),
  '2 MB of newlines as an error': `-ERR ${' \t'.repeat(1_000_000)}\r\n`,
  'a list of 100,000 empty texts': list(...new Array<string>(100_000).fill(bulk(''))),
  'a list of lists': list(list(list()), list()),
  'a number': ':5\r\n',
  'a word': '+OK\r\n',
  'an empty text': bulk(''),
  nothing: '$-1\r\n',
  'a fence of 2 MB': bulk(`h${'9'.repeat(2_000_000)}`),
  'a place in the queue that is none': bulk('qx y'),
  'rooms to go on with that nobody asked about': bulk('h1700000000000000\n+7\n+1000000'),
  'an eviction without a reason': bulk('e{'),
}

describe.each(Object.entries(replies))('a server that answers %s', (what, reply) => {
  test('fails every request with one sentence, and gets no further requests because of it', async () => {
    await using server = await startFakeRedis(() => reply)
    const warnings: unknown[] = []
    const hear = (warning: Error): unknown => warnings.push(warning)
    process.on('warning', hear)
    const store = redisStore(newClient(server.url), { prefix: `${what}:` })
    for (const request of requestsOf(store)) await failsSoundly(request)
    process.off('warning', hear)
    if (reply.includes('\n\n')) expect(warnings).toEqual([])
    // The proof of rights comes before the first request, and a few requests are tried a second time.
    expect(server.commands).toBeLessThan(30)
    await store.close()
  })

  test('is reported by `connect` and by the doctor, and does not count for a majority', async () => {
    await using server = await startFakeRedis((command) => subscribed(command) ?? reply)
    const address = `127.0.0.1:${server.port}`
    for (const open of [
      () => openRedis(server.url).then((store) => requestsOf(store)[0]?.()),
      () => openRedisCluster(`redis+cluster://${address}`),
      () => openRedisSentinel(`redis+sentinel://${address}/mymaster`),
      () => openRedlock(`redlock:${server.url}`),
    ])
      await failsSoundly(open)
    for (const url of [
      server.url,
      `redis+cluster://${address}`,
      `redis+sentinel://${address}/mymaster`,
      `redlock:${server.url}`,
    ]) {
      const { findings } = await diagnose(url)
      expect(findings.some(({ verdict }) => verdict !== 'ok')).toBe(true)
      for (const { text } of findings) expect(text.length).toBeLessThan(1000)
    }
  })
})

/**
 * The answer to a SUBSCRIBE. Any other answer would end the process, because ioredis throws where no caller can catch
 * it.
 */
function subscribed([command, channel = '']: readonly string[]): string | undefined {
  return command?.toLowerCase() === 'subscribe' ? list(bulk('subscribe'), bulk(channel), ':1\r\n') : undefined
}

function requestsOf(store: Store): readonly (() => unknown)[] {
  const mine = ticket()
  return [
    () => store.acquire(mine),
    () => store.acquire(ticket({ limit: UNLIMITED, minHoldMs: 10 })),
    () => store.renew([mine]),
    () => store.release({ key: 'key', id: 'id', cancel: true }),
    () => store.evict({ key: 'key', id: undefined, reason: 'stuck' }),
    () => store.inspect({ prefix: '', cursor: undefined, count: 10 }),
  ]
}

async function failsSoundly(request: () => unknown): Promise<void> {
  const error = await Promise.resolve()
    .then(request)
    .then(
      () => expect.unreachable(),
      (reason: unknown) => reason,
    )
  expect(isHoldfastError(error, 'store-refused') || isHoldfastError(error, 'store-unavailable')).toBe(true)
  const { message, cause } = error as Error
  expect(message.length).toBeLessThan(1000)
  expect(String((cause as Error | undefined)?.message ?? '').length).toBeLessThan(2000)
}

describe('a server whose SCAN has no end', () => {
  const ROOM = 'holdfast:{found}'
  test.each<[string, (calls: number) => string]>([
    ['goes on where it is', () => '7'],
    ['goes round in circles', (calls) => String(1 + (calls % 999))],
  ])('because it %s is said to have none', async (_, cursor) => {
    let calls = 0
    await using server = await startFakeRedis(([command = '']) => {
      if (command !== 'SCAN') return list(bulk('1700000000000'), bulk(''))
      calls += 1
      return list(bulk(cursor(calls)), list(bulk(ROOM)))
    })
    const locks = createLocks(redisStore(newClient(server.url)))
    const listing = async (): Promise<void> => {
      for await (const _ of locks.inspect()) expect.unreachable()
    }
    await expect(listing()).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/its SCAN does not come to an end/),
    })
    expect(calls).toBeLessThan(5000)
    await locks.close()
  })

  test.each<[string, number]>([
    ['finds nothing', 0],
    ['finds the same room', 1],
  ])('because it always goes on elsewhere and %s is said to have none', async (_, found) => {
    let calls = 0
    const topology: Pick<Topology, 'scripts' | 'divide' | 'scan'> = {
      scripts: serverScripts,
      divide: (asked) => (asked.length === 0 ? [] : [[partition as Partition, asked]]),
      scan: async (from): Promise<Scanned> => {
        calls += 1
        return { names: found === 0 ? [] : [ROOM], at: from, next: String(calls) }
      },
    }
    const holder = `9999999999999 1 tid\x001700000000000000 1700000000000000 1 1 1 0 0 inbox {}`
    const partition: Pick<Partition, 'read'> = {
      read: async (rooms) => ({
        nowMs: 1_700_000_000_000,
        contents: rooms.map((room) => (room === ROOM ? holder : '')),
      }),
    }
    const source = { topology: topology as Topology, names: new RoomNames('holdfast:') }
    const listing = async (): Promise<void> => {
      let cursor: string | undefined
      do {
        const page = await roomPage(source, { prefix: '', cursor, count: 100 })
        expect(page.rooms.length).toBeLessThanOrEqual(found)
        cursor = page.next
      } while (cursor !== undefined)
    }
    await expect(listing()).rejects.toMatchObject({ code: 'store-refused' })
    expect(calls).toBeLessThanOrEqual(1_000_000)
  })
})

test('what people are shown of a key is short, however long the label, the id or the key is', async () => {
  const holder = (id: string, owner: string): string =>
    bulk(`9999999999999 2 t${id}\x001700000000000000 1700000000000000 1 1 1 0 0 inbox ${owner}`)
  const held = [holder('id', NEWLINES), holder(NEWLINES, '{}'), holder('id', '{}')]
  await using server = await startFakeRedis(([command, , , room]) => {
    if (command === 'SCAN')
      return list(
        bulk('0'),
        list(...['label', 'id', 'key', NEWLINES].map((key) => bulk(`holdfast:{${key}}`))),
      )
    if (room === 'holdfast:{}') return list(bulk('1700000000000'), bulk(''))
    // The members in the order of a sorted set: id, key, label.
    return list(bulk('1700000000000'), ...[held[1], held[2], held[0]].map(String))
  })
  const store = redisStore(newClient(server.url))
  const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
  expect(rooms.map(({ key, holders: [one] }) => [key, one?.id, one?.owner])).toEqual([
    ['key', 'id', '{}'],
    ['label', 'id', '{}'],
  ])
  await store.close()
})

test('a cluster that reports slots that do not exist is not believed', async () => {
  const node = list(bulk('127.0.0.1'), ':1\r\n')
  for (const [from, to] of [
    [0, 999_999_999_999],
    [-1, 16_383],
  ]) {
    await using server = await startFakeRedis(() => list(list(`:${from}\r\n`, `:${to}\r\n`, node)))
    const store = redisStore(new Cluster([server.port], { lazyConnect: true }))
    await failsSoundly(() => store.acquire(ticket()))
    await store.close()
  }
})

test('a master of a majority that answers nonsense has no vote', async () => {
  await using server = await startFakeRedis(() => replies['2 MB of newlines'] as string)
  const store = redlockStore([newClient(server.url)], { maxTtl: '60s' })
  await failsSoundly(() => store.acquire(ticket({ ttlMs: 1000, acceptMs: 1000 })))
  expect(server.commands).toBeLessThan(100)
  await store.close()
})
