import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { seededRandom } from '../../../src/testing/random.ts'
import { until } from '../../servers/until.ts'
import { faultyLink } from './faulty-link.ts'
import { startMasters } from './masters.ts'

beforeEach(() => {
  // The store warns of each fault.
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
})
afterEach(() => vi.restoreAllMocks())

test('five clients whose commands and answers get lost and overtake one another are all served, one at a time, and leave nothing', async () => {
  const seed = crypto.randomUUID()
  await using masters = await startMasters(5)
  const clients = Array.from({ length: 5 }, (_, client) => {
    const random = seededRandom(`${seed}/${client}`)
    const links = masters.urls.map((url) =>
      faultyLink(url, { random, delayMs: 4, lost: 0.04, unanswered: 0.04, code: 'NOREPLICAS' }),
    )
    const store = new RedlockStore(links, { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 })
    return createLocks(store, { ttl: '2s', wait: '2m' })
  })
  let inside = 0
  let served = 0
  let last = 0n
  await Promise.all(
    clients.map(async (locks) => {
      for (let round = 0; round < 10; round += 1) {
        const lease = await locks.acquire('k')
        inside += 1
        expect(inside, seed).toBe(1)
        expect(lease.fence > last, seed).toBe(true)
        last = lease.fence
        await new Promise((resolve) => setTimeout(resolve, 1))
        inside -= 1
        served += 1
        await lease.release()
      }
    }),
  )
  expect(served, seed).toBe(50)
  await Promise.all(clients.map((locks) => locks.close()))
  const store = masters.store()
  await until('nobody holds or waits', async () => {
    const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 1 })
    return rooms.length === 0
  })
  await store.close()
})
