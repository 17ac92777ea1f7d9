import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LiveViewers } from '../../src/dashboard/live.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { watchRooms } from '../../src/room-watch/room-watch.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { ask, listen, send, serve } from './dashboard-server.ts'

let locks: Locks
let live: LiveViewers
let looks: number
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] })
  locks = createLocks(memoryStore())
  looks = 0
  live = new LiveViewers((onSnapshot) =>
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

test('the store is read while a page is open and for a minute afterwards, and then no more', async () => {
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

test('while a page is open the watch does not end, and the minute begins when the last page closes', async () => {
  await using server = await serve((_, response) =>
    live.join(response, { name: 'looks', view: () => ({ looks }) }),
  )
  const stream = await listen(server.port, '/')
  await stream.next()
  await vi.advanceTimersByTimeAsync(300_000)
  expect(looks).toBeGreaterThan(200)
  stream.leave()
  await vi.waitUntil(() => server.inFlight() === 0, { timeout: 60_000 })
  await vi.advanceTimersByTimeAsync(61_000)
  const before = looks
  await vi.advanceTimersByTimeAsync(120_000)
  expect(looks).toBe(before)
})

test('during a long look the view is sent again, also during the first look', async () => {
  // A watch whose first look goes on and on.
  const watch = watchRooms(locks)
  watch.stop()
  const viewers = new LiveViewers(() => watch)
  await using server = await serve((_, response) =>
    viewers.join(response, { name: 'at', view: ({ snapshot }) => ({ at: snapshot.at }) }),
  )
  const stream = await listen(server.port, '/')
  for (let round = 0; round < 3; round += 1) {
    await vi.advanceTimersByTimeAsync(10_000)
    expect(await stream.next()).toEqual({ at: 0 })
  }
  stream.leave()
  viewers.close()
})

test('a client that has not taken a message for half a minute is dropped', async () => {
  await using server = await serve((_, response) =>
    live.join(response, { name: 'text', view: () => ({ text: 'x'.repeat(8_000_000) }) }),
  )
  const { request } = await import('node:http')
  const hung = request({ port: server.port, host: '127.0.0.1' }, (response) => response.pause()).end()
  hung.on('error', () => {})
  await vi.waitUntil(() => server.inFlight() === 1, { timeout: 60_000 })
  await vi.advanceTimersByTimeAsync(20_000)
  expect(server.inFlight()).toBe(1)
  await vi.advanceTimersByTimeAsync(20_000)
  await vi.waitUntil(() => server.inFlight() === 0, { timeout: 60_000 })
})

test('a client that has left before its first message keeps no watch running', async () => {
  let joined = false
  await using server = await serve((_, response) => {
    // The client joins late if the application takes its time to authorize it.
    response.once('close', () => {
      live.join(response, { name: 'looks', view: () => ({ looks }) })
      joined = true
    })
  })
  const sent = send(server.port, {})
  sent.on('error', () => {})
  await vi.waitUntil(() => server.inFlight() === 1, { timeout: 60_000 })
  sent.destroy()
  await vi.waitUntil(() => joined, { timeout: 60_000 })
  await vi.advanceTimersByTimeAsync(300_000)
  expect(looks).toBe(0)
})

test('a view that cannot be built ends its stream, with one warning, and no other', async () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  try {
    let isBroken = false
    await using server = await serve(({ url = '' }, response) => {
      const view = () => {
        if (isBroken && url !== '/good') throw new TypeError('text.slice is no function')
        return { url, looks }
      }
      try {
        live.join(response, { name: url, view })
      } catch {
        response.writeHead(500).end()
      }
    })
    const streams = await Promise.all(['/bad', '/worse', '/good'].map((url) => listen(server.port, url)))
    for (const stream of streams) await stream.next()
    isBroken = true
    const before = looks
    await vi.advanceTimersByTimeAsync(3000)
    expect(looks).toBeGreaterThan(before)
    await vi.waitUntil(() => server.inFlight() === 1, { timeout: 60_000 })
    expect(await streams[2]?.next()).toMatchObject({ url: '/good' })
    expect(warn).toHaveBeenCalledTimes(1)
    expect(warn).toHaveBeenCalledWith(
      'The dashboard could not build a view.',
      expect.objectContaining({ detail: expect.stringContaining('text.slice is no function') }),
    )
    expect(await ask(server, { path: '/bad' })).toMatchObject({ status: 500 })
    streams[2]?.leave()
  } finally {
    warn.mockRestore()
  }
})

test('views that several clients want are made once for each look', async () => {
  const asked: string[] = []
  await using server = await serve(({ url = '' }, response) => {
    const view = () => {
      asked.push(url)
      return { url }
    }
    live.join(response, { name: url, view })
  })
  const streams = await Promise.all(
    Array.from({ length: 20 }, (_, n) => listen(server.port, n < 15 ? '/many' : '/few')),
  )
  for (const [n, stream] of streams.entries()) {
    expect(await stream.next()).toEqual({ url: n < 15 ? '/many' : '/few' })
  }
  asked.length = 0
  const before = looks
  await vi.advanceTimersByTimeAsync(1500)
  for (const stream of streams) await stream.next()
  expect(asked.length).toBe(2 * (looks - before))
  for (const stream of streams) stream.leave()
})

test('other work goes on between the views of different queries, and calls during a round begin one more', async () => {
  const asked: { readonly url: string; readonly turn: number }[] = []
  let [turn, calls] = [0, 0]
  const turns = async (count: number): Promise<void> => {
    for (let n = 0; n < count; n += 1) await new Promise((resolve) => setImmediate(resolve))
  }
  await using server = await serve(({ url = '' }, response) => {
    const view = () => {
      asked.push({ url, turn })
      calls -= 1
      if (calls >= 0) live.sendAll()
      return { url }
    }
    live.join(response, { name: url, view })
  })
  const streams = await Promise.all(Array.from({ length: 10 }, (_, n) => listen(server.port, `/${n}`)))
  for (const stream of streams) await stream.next()
  await vi.waitUntil(() => looks === 1, { timeout: 60_000 })
  await turns(20)
  asked.length = 0
  calls = 5
  let isOver = false
  const count = () => {
    turn += 1
    if (!isOver) setImmediate(count)
  }
  count()
  live.sendAll()
  expect(asked.length).toBe(1)
  await vi.waitUntil(() => asked.length === 20, { timeout: 60_000 })
  isOver = true
  expect(new Set(asked.map((each) => each.turn)).size).toBeGreaterThanOrEqual(19)
  await turns(20)
  expect([asked.length, looks]).toEqual([20, 1])
  for (const stream of streams) stream.leave()
})
