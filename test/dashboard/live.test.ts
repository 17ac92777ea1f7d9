import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Live } from '../../src/dashboard/live.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { watchRooms } from '../../src/watch/room-watch.ts'
import { listen, serve } from './dashboard-server.ts'

let locks: Locks
let live: Live
let looks: number
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] })
  locks = createLocks(memoryStore())
  looks = 0
  live = new Live((onSnapshot) =>
    watchRooms(locks, {
      onSnapshot: () => {
        looks += 1
        onSnapshot()
      },
    }),
  )
})
afterEach(async () => {
  live.close()
  await locks.close()
  vi.useRealTimers()
})

test('the store is looked at while somebody looks and for a minute afterwards, and then no more', async () => {
  await live.looked()
  expect(looks).toBe(1)
  await vi.advanceTimersByTimeAsync(59_000)
  expect(looks).toBeGreaterThan(50)
  await vi.advanceTimersByTimeAsync(2000)
  const before = looks
  await vi.advanceTimersByTimeAsync(120_000)
  expect(looks).toBe(before)
  await live.looked()
  expect(looks).toBe(before + 1)
})

test('while somebody looks it does not end, and the minute begins when the last one leaves', async () => {
  await using server = await serve((_, response) => live.join(response, () => ({ looks })))
  const stream = await listen(server.port, '/')
  await stream.next()
  await vi.advanceTimersByTimeAsync(300_000)
  expect(looks).toBeGreaterThan(200)
  stream.leave()
  await vi.waitUntil(() => server.inFlight() === 0, { timeout: 10_000 })
  await vi.advanceTimersByTimeAsync(61_000)
  const before = looks
  await vi.advanceTimersByTimeAsync(120_000)
  expect(looks).toBe(before)
})

test('who has not taken a message for half a minute is let go', async () => {
  await using server = await serve((_, response) =>
    live.join(response, () => ({ text: 'x'.repeat(8_000_000) })),
  )
  const { request } = await import('node:http')
  const hung = request({ port: server.port, host: '127.0.0.1' }, (response) => response.pause()).end()
  hung.on('error', () => {})
  await vi.waitUntil(() => server.inFlight() === 1, { timeout: 10_000 })
  await vi.advanceTimersByTimeAsync(20_000)
  expect(server.inFlight()).toBe(1)
  await vi.advanceTimersByTimeAsync(20_000)
  await vi.waitUntil(() => server.inFlight() === 0, { timeout: 10_000 })
})
