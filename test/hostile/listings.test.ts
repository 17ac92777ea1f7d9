import pg from 'pg'
import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks } from '../../src/index.ts'
import { inspect } from '../../src/stores/etcd/inspect.ts'
import { KeyNames } from '../../src/stores/etcd/rooms/key-names.ts'
import type { Session } from '../../src/stores/etcd/session/session.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { startFakePostgres } from '../servers/fake-postgres.ts'

// Redis is in test/stores/redis/hostile.test.ts.
describe('a listing that a server never ends', () => {
  const page = { prefix: '', cursor: undefined, count: 10 }

  test('of PostgreSQL is refused when it goes back', async () => {
    const room = JSON.stringify({ holders: [], queue: [], closedMs: 1000 })
    let asked = 0
    await using server = await startFakePostgres(() => {
      asked += 1
      const rows = Array.from({ length: 101 }, (_, index) => [`key ${(asked % 3) * 200 + index}`, room])
      return { columns: ['key', 'room'], rows }
    })
    const pool = new pg.Pool({ connectionString: server.url, max: 2 })
    const locks = createLocks(postgresStore(pool))
    const listing = async (): Promise<void> => {
      for await (const _ of locks.inspect()) if (asked > 100) expect.unreachable()
    }
    await expect(listing()).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('does not return them in order'),
    })
    await locks.close()
    await pool.end()
  })

  test('of etcd is refused when it does not go on', async () => {
    const server = etcdThatAnswers(() => ['holdfast/tickets/key id'])
    await expect(inspect(server.session, page)).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('does not return them in order'),
    })
    expect(server.asked()).toBeLessThan(10)
  })

  test('of etcd ends its page when no room is found', async () => {
    const server = etcdThatAnswers((asked) => [`holdfast/tickets/key${String(asked).padStart(6, '0')} id`])
    const { rooms, next } = await inspect(server.session, page)
    expect(rooms).toEqual([])
    expect(next).toBeDefined()
    expect(server.asked()).toBeLessThan(100)
  })

  test('of any store is refused after 100,000 pages without a key', async () => {
    let asked = 0
    const inspect = () => {
      asked += 1
      return { rooms: [], next: String(asked) }
    }
    const store: Store = Object.create(memoryStore(), { inspect: { value: inspect } })
    const listing = async (): Promise<void> => {
      for await (const _ of createLocks(store).inspect()) expect.unreachable()
    }
    await expect(listing()).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('comes to no end'),
    })
    expect(asked).toBe(100_001)
  })
})

/** A server that has no ticket that counts, and always says that more follows. */
function etcdThatAnswers(namesOf: (asked: number) => readonly string[]): {
  readonly session: Session
  readonly asked: () => number
} {
  let asked = 0
  const names = new KeyNames('holdfast/')
  const cluster = {
    ask: async () => {
      asked += 1
      return { reply: { ranges: [{ pairs: namesOf(asked).map((key) => ({ key })), more: true }] } }
    },
  }
  const session = {
    ...{ names, cluster, tickets: new Map() },
    fences: { look: async () => {} },
    entries: () => [],
  }
  return { session: session as unknown as Session, asked: () => asked }
}
