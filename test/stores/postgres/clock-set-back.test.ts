import { afterAll, beforeAll, expect, test } from 'vitest'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients } from './clients.ts'
import { controlClock } from './controlled-clock.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

test.each(Object.entries(clients))(
  'after the clock was set back, a key is free that was released, through %s',
  async (name, newClient) => {
    const url = await server.createDatabase(`set_back_${name.length}`)
    await migrate(newClient(url))
    const clock = await controlClock(url)
    const store = postgresStore(newClient(url))
    let nowMs = Date.now()
    await clock.setTime(nowMs)
    let last = 0n
    const grants: readonly (() => Promise<bigint>)[] = [
      // The key is granted when it is free, and handed over to a waiter that confirms by an acquire, and by a renewal.
      async () => fenceOf(await store.acquire(mine)),
      async () => fenceOf(await handedOver(async () => store.acquire(mine))),
      async () => fenceOf(await handedOver(async () => (await store.renew([mine]))[0])),
    ]
    let mine = ticket()
    const handedOver = async <Answer>(confirm: () => Promise<Answer>): Promise<Answer> => {
      const before = ticket()
      await store.acquire(before)
      await store.acquire(mine)
      await store.release(releaseOf(before))
      return confirm()
    }
    for (const grant of grants) {
      mine = ticket()
      const fence = await grant()
      expect(fence).toBeGreaterThan(last)
      last = fence
      nowMs -= 20_000
      await clock.setTime(nowMs)
      expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
      expect((await store.inspect({ prefix: '', cursor: undefined, count: 1 })).rooms).toEqual([])
    }
    await store.close()
    await clock.close()
  },
)
