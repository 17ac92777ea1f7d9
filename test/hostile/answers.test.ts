import fc from 'fast-check'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks } from '../../src/index.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { startFakePostgres } from '../servers/fake-postgres.ts'
import { bulk, list, startFakeRedis } from '../servers/fake-redis.ts'
import { framed, reply, startStrangeServer } from '../stores/etcd/strange-server.ts'
import { newClient } from '../stores/redis/clients.ts'
import { ticket } from '../stores/tickets.ts'
import { expectSound, hostileText, runs, soundly } from './fuzzing.ts'

/** A caller that waits for longer than this for a server that answers at once has lost the store. */
const BOUND_MS = 30_000
const MIB = 1_048_576

/** Every call ends in time, with an answer or with an error of ours, and keeps little in memory. */
async function endsSoundly(store: Store): Promise<void> {
  const [startedAt, before] = [performance.now(), process.memoryUsage().rss]
  const mine = ticket({ ttlMs: 1000, acceptMs: 1000, patienceMs: 1000 })
  await soundly(() => store.acquire(mine))
  await soundly(() => store.renew([mine, ticket({ key: 'other' })]))
  await soundly(() => store.release({ key: 'key', id: 'id', cancel: true }))
  await soundly(() => store.evict({ key: 'key', id: undefined, reason: 'stuck' }))
  const page = await soundly(() => store.inspect({ prefix: '', cursor: undefined, count: 10 }))
  expect(page?.rooms.length ?? 0).toBeLessThanOrEqual(10)
  expect(performance.now() - startedAt).toBeLessThan(BOUND_MS)
  expect(process.memoryUsage().rss - before).toBeLessThan(500 * MIB)
}

describe('a server that answers whatever it likes ends no process, and costs little time and memory', () => {
  const { answer } = fc.letrec((tie) => ({
    answer: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      hostileText.map(bulk),
      hostileText.map((text) => `+${text.replace(/[\r\n]/g, ' ')}\r\n`),
      hostileText.map((text) => `-${text.replace(/[\r\n]/g, ' ')}\r\n`),
      fc
        .constantFrom(
          ...['MOVED 1 127.0.0.1:1', 'ASK 1 x:y', 'NOSCRIPT', 'CLUSTERDOWN', 'BUSY', 'OOM'],
          'READONLY',
        )
        .map((code) => `-${code}\r\n`),
      fc.constantFrom('$-1\r\n', '*-1\r\n', ':-1\r\n', ':99999999999999999999\r\n', '$0\r\n\r\n', '*0\r\n'),
      fc.constantFrom(
        bulk('h1700000000000000'),
        bulk('q1 1 1'),
        bulk('b1'),
        bulk('g'),
        bulk('e"x"'),
        bulk('u'),
      ),
      fc.array(tie('answer') as fc.Arbitrary<string>, { maxLength: 6 }).map((parts) => list(...parts)),
    ),
  }))

  test('as Redis, in its own protocol', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(answer, { minLength: 1, maxLength: 8 }), async (answers) => {
        let asked = 0
        await using server = await startFakeRedis(() => {
          asked += 1
          return String(answers[asked % answers.length])
        })
        const store = redisStore(newClient(server.url))
        await endsSoundly(store)
        expect(asked).toBeLessThan(20_000)
        await store.close()
      }),
      runs(25),
    )
  })

  test.concurrent.each([
    ['a text of a terabyte', '$1099511627776\r\nx'],
    ['a list of a billion parts', `*1000000000\r\n${':1\r\n'.repeat(1000)}`],
  ])('as Redis, with the beginning of %s', async (_, beginning) => {
    await using server = await startFakeRedis(() => beginning)
    await using locks = createLocks(redisStore(newClient(server.url)), { storeTimeout: '1s' })
    const before = process.memoryUsage().rss
    for (const wait of [0, '2s']) {
      const startedAt = performance.now()
      const error = await locks.acquire('k', { wait }).catch((reason: unknown) => reason)
      expectSound(error)
      expect(performance.now() - startedAt).toBeLessThan(BOUND_MS)
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(500 * MIB)
  })

  test('as etcd, in its own protocol', async () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 60 }),
      // Fields of protobuf: a tag, and a length or a number that may be anything.
      fc
        .array(fc.tuple(fc.nat(127), fc.nat(255), fc.uint8Array({ maxLength: 12 })), { maxLength: 8 })
        .map((fields) => Uint8Array.from(fields.flatMap(([tag, length, rest]) => [tag, length, ...rest]))),
      fc.constantFrom(Uint8Array.of(0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f), new Uint8Array(2 * MIB).fill(0x0a)),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(bytes, { minLength: 1, maxLength: 6 }), async (answers) => {
        let asked = 0
        await using server = await startStrangeServer((stream) => {
          asked += 1
          reply(stream, [framed(answers[asked % answers.length] as Uint8Array)])
        })
        const store = etcdStore({ endpoints: [server.url] })
        await endsSoundly(store)
        expect(asked).toBeLessThan(20_000)
        await store.close()
      }),
      runs(10),
    )
  })

  test('as PostgreSQL, in its own protocol', async () => {
    const cells = fc.array(
      fc.oneof(hostileText, fc.constantFrom('t', 'f', '0', 'h1', 'q1 1 1', 'g', 'u', '')),
      { maxLength: 4 },
    )
    const results = fc.array(fc.tuple(fc.constantFrom('answer', 'line', 'version', 'x'), cells), {
      minLength: 1,
      maxLength: 6,
    })
    await fc.assert(
      fc.asyncProperty(results, async (answers) => {
        let asked = 0
        await using server = await startFakePostgres(() => {
          asked += 1
          const [column, cells] = answers[asked % answers.length] as (typeof answers)[number]
          return { columns: [column], rows: cells.map((cell) => [cell]) }
        })
        const pool = new pg.Pool({ connectionString: server.url, max: 2 })
        pool.on('error', () => {})
        const store = postgresStore(pool)
        await endsSoundly(store)
        await store.close()
        await pool.end()
      }),
      runs(10),
    )
  })
})
