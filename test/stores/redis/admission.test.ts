import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

const MOST_ADMITTED = 200

let server: RedisServer
let store: Store
const woken = new Set<string>()
beforeAll(async () => {
  server = await startRedis()
  store = redisStore(newClient(server.url))
  await store.listen?.((wake) => wake.tag !== 'all' && woken.add(wake.id))
})
beforeEach(() => {
  woken.clear()
})
afterAll(async () => {
  await store.close()
  await server.close()
})

test('thousands of readers are admitted in order, some hundreds at a time, and none of them has to wait for a timer', async () => {
  const writer = ticket({ key: 'readers' })
  const readers = Array.from({ length: 3000 }, () => ticket({ key: 'readers', limit: UNLIMITED }))
  await acquireAll([writer, ...readers])
  await store.release(releaseOf(writer))
  await until('all are woken', () => readers.every(({ id }) => woken.has(id)))
  const fences = (await store.renew(readers)).map(fenceOf)
  expect(fences).toEqual([...fences].sort((one, other) => (one < other ? -1 : 1)))
  expect(Math.max(...stepsOf(fences))).toBe(MOST_ADMITTED)
  await releaseAll(readers)
})

test('an admitted ticket goes on with its admission when the client that released is gone', async () => {
  const gone = redisStore(newClient(server.url))
  const writer = ticket({ key: 'orphans' })
  fenceOf(await gone.acquire(writer))
  const readers = Array.from({ length: 1000 }, () => ticket({ key: 'orphans', limit: UNLIMITED }))
  await acquireAll(readers)
  const released = gone.release(releaseOf(writer))
  await gone.release(releaseOf(ticket({ key: 'sent after it' })))
  await gone.close()
  await released
  await until('all are woken', async () => {
    await store.renew(readers.filter(({ id }) => woken.has(id)))
    return readers.every(({ id }) => woken.has(id))
  })
  await releaseAll(readers)
})

test.each([
  ['a key of two lines', 'two\nlines', (store: Store, writer: Ticket) => store.release(releaseOf(writer))],
  [
    'an eviction',
    'evicted',
    (store: Store, { key, id }: Ticket) => store.evict({ key, id, reason: 'stuck' }),
  ],
  ['an expiry that a request finds', 'asked', expireAnd((store, key) => store.acquire(stranger(key)))],
  ['an expiry that a renewal finds', 'renewed', expireAnd((store, key) => store.renew([stranger(key)]))],
] as const)('hundreds are admitted to the last of them after %s, too', async (_what, key, end) => {
  const writer = ticket({ key, ttlMs: 1000 })
  const readers = Array.from({ length: 500 }, () => ticket({ key, limit: UNLIMITED }))
  await acquireAll([writer, ...readers])
  await end(store, writer)
  // The test reads the room, because a request of a ticket would admit the next ones.
  await until('all are admitted', async () => {
    const { rooms } = await store.inspect({ prefix: key, cursor: undefined, count: 1 })
    return rooms[0]?.holders.length === readers.length
  })
  await Promise.all(readers.map((each) => store.release(releaseOf(each))))
})

test('thousands of waiters that never came back do not hold up the waiters behind them', async () => {
  const [holder, last] = [ticket({ key: 'dead' }), ticket({ key: 'dead' })]
  const dead = Array.from({ length: 1000 }, () => ticket({ key: 'dead', patienceMs: 100 }))
  await acquireAll([holder, ...dead, last])
  await until('nobody remembers them', async () => {
    const { rooms } = await store.inspect({ prefix: holder.key, cursor: undefined, count: 1 })
    return rooms[0]?.queue.length === 1
  })
  await store.release(releaseOf(holder))
  await until('the last is woken', () => woken.has(last.id))
  fenceOf((await store.renew([last]))[0])
  await store.release(releaseOf(last))
})

function expireAnd(
  ask: (store: Store, key: string) => unknown,
): (store: Store, writer: Ticket) => Promise<void> {
  return async (store, { key, id }) => {
    await until('the writer has expired', async () => {
      const { rooms } = await store.inspect({ prefix: key, cursor: undefined, count: 1 })
      return rooms[0]?.holders.every((holder) => holder.id !== id)
    })
    await ask(store, key)
  }
}

/** A ticket that takes no place in the queue. */
function stranger(key: string): Ticket {
  return ticket({ key, patienceMs: 0 })
}

async function acquireAll(tickets: readonly Ticket[]): Promise<void> {
  await Promise.all(tickets.map((each) => store.acquire(each)))
}

async function releaseAll(tickets: readonly Ticket[]): Promise<void> {
  await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  expect(await server.command('DBSIZE')).toBe(1)
}

/**
 * How many tickets were admitted in each step of the server. Their fences follow each other, and time passes until the
 * next step.
 */
function stepsOf(fences: readonly bigint[]): number[] {
  const steps: number[] = []
  fences.forEach((fence, index) => {
    if (index > 0 && fence === (fences[index - 1] as bigint) + 1n)
      steps[steps.length - 1] = (steps.at(-1) ?? 0) + 1
    else steps.push(1)
  })
  return steps
}

test('a large queue is evicted in parts from its end, so that no script is long and no waiter gets the key in between', async () => {
  const [holder, ...waiters] = Array.from({ length: 1201 }, () => ticket({ key: 'crowded' })) as [
    Ticket,
    ...Ticket[],
  ]
  await acquireAll([holder, ...waiters])
  await server.command('CONFIG', 'RESETSTAT')
  const evicted = await store.evict({ key: 'crowded', id: undefined, reason: 'stuck' })
  expect(evicted).toEqual([holder, ...waiters].map(({ id }) => id))
  expect((await server.commandStats())['evalsha']).toBe(7)
  const answers = await store.renew([holder, ...waiters])
  expect(answers.every((answer) => answer.tag === 'gone' && answer.evicted)).toBe(true)
})
