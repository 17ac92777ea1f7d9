import { afterEach, expect, test, vi } from 'vitest'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { startMasters } from './masters.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

test('a holder that was suspended for longer than its ttl does not take its votes again', async () => {
  await using masters = await startMasters(3)
  const [store, other] = [masters.store(), masters.store()]
  await masters.meet(store, other)
  const holder = ticket({ ttlMs: 3000 })
  const fence = fenceOf(await store.acquire(holder))
  const beganAt = performance.now()
  // The holder's votes run out, and another process holds the key in between.
  const between = ticket({ patienceMs: 0 })
  const next = await until('the votes have run out', async () => {
    const answer = await other.acquire(between)
    return answer.tag === 'held' ? answer : undefined
  })
  expect(fenceOf(next) > fence).toBe(true)
  await other.release(releaseOf(between))
  // The monotonic clock stands still while the machine is suspended. The wall clock goes on.
  const monotonicMs = performance.now.bind(performance)
  const sleptMs = monotonicMs() - beganAt
  vi.spyOn(performance, 'now').mockImplementation(() => monotonicMs() - sleptMs)
  expect(await store.renew([holder])).toEqual([{ tag: 'gone', evicted: false }])
  const { rooms } = await other.inspect({ prefix: holder.key, cursor: undefined, count: 1 })
  expect(rooms).toEqual([])
  for (const view of [store, other]) await view.close()
})
