import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { asHttpError } from '../../src/http/index.ts'
import { connect } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock } from '../engine/fake-clock.ts'
import { errorOf, scene, startProcess } from '../engine/scene.ts'
import { places } from '../servers/places.ts'

test.concurrent.each(Object.entries(places))(
  'on %s the error of a call that waited in vain says who holds the key, and for how long',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-who-'))
    const place = await open(folder)
    const [holder, other] = await Promise.all([connect(place.url, { label: 'billing' }), connect(place.url)])
    try {
      const lease = await holder.acquire('k')
      // On a busy machine the store, or only the look, may be answered too late. Then the error names nobody.
      for (let wait = 500; ; wait *= 2) {
        const error = await errorOf(other.acquire('k', { wait }))
        if (error['code'] === 'store-unavailable' && wait < 30_000) continue
        expect(error).toMatchObject({ code: 'acquire-timeout', key: 'k' })
        // The ticket of the try before may still leave the queue.
        if ((error['holder'] === undefined || error['ahead'] !== 0) && wait < 30_000) continue
        expect(error).toMatchObject({
          ahead: 0,
          holder: { owner: { pid: process.pid, label: 'billing' }, heldMs: expect.any(Number), others: 0 },
          message: expect.stringMatching(
            new RegExp(` The key has been held for [\\d.]+ m?s by \\S+:${process.pid} \\(billing\\)\\.$`),
          ),
        })
        break
      }
      await lease.release()
    } finally {
      await Promise.all([holder.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

describe('the look for the holder', () => {
  test('is one request for all whose patience ends together, shortly before it ends', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = Array.from({ length: 50 }, () => errorOf(locks.acquire('k', { wait: 1000 })))
    await clock.advance(700)
    expect(store.count('inspect')).toBe(0)
    for (const { message } of await clock.until(Promise.all(waiting)))
      expect(message).toMatch(/ The key has been held for 1\.0 s by \?:\? \(test\)\.$/)
    expect(store.count('inspect')).toBe(1)
    await held.release()
  })

  test('is not made for a call that gets the key in time, and not for one that hardly waits', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const first = locks.acquire('k', { wait: 1000 })
    await clock.advance(500)
    await held.release()
    const lease = await clock.until(first)
    await clock.advance(1000)
    for (const wait of [0, 99]) {
      const error = await clock.until(errorOf(other.locks.acquire('k', { wait })))
      expect(error).toMatchObject({ code: 'acquire-timeout', holder: undefined })
    }
    expect(store.count('inspect')).toBe(0)
    await lease.release()
  })

  test('counts the other holders, and never names the ticket that waits', async () => {
    const { clock, locks, other } = scene()
    const readers = await Promise.all([1, 2, 3].map(() => other.locks.readWrite('k').acquireRead()))
    const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
    expect(error).toMatchObject({ holder: { owner: { label: 'test' }, heldMs: 1000, others: 2 } })
    expect(error.message).toMatch(/ by \?:\? \(test\) and 2 others\.$/)
    await Promise.all(readers.map((lease) => lease.release()))
  })

  test('tells no name that is older than a second', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
    await clock.advance(1000)
    store.always('lose reply', ['inspect'])
    const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
    expect(error).toMatchObject({ code: 'acquire-timeout', holder: undefined })
    await held.release()
  })

  test('is made less often the longer the queue is, because the store sends all of it', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const patient = Array.from({ length: 5000 }, () => errorOf(other.locks.acquire('k', { wait: 60_000 })))
    for (let second = 0; second < 4; second += 1)
      await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
    expect(store.count('inspect')).toBe(1)
    await clock.until(Promise.all(patient))
    await held.release()
  })

  test('is limited to a hundred rooms at the same time', async () => {
    const { clock, store, locks, other } = scene()
    store.always('lose reply', ['inspect'])
    for (let round = 1; round <= 2; round += 1) {
      const keys = Array.from({ length: 150 }, (_, index) => `k:${index}`)
      const held = await Promise.all(keys.map((key) => other.locks.acquire(key)))
      const errors = keys.map((key) => errorOf(locks.acquire(key, { wait: 1000 })))
      for (const error of await clock.until(Promise.all(errors)))
        expect(error).toMatchObject({ code: 'acquire-timeout', waitedMs: 1000 })
      // Those without an answer are given up after ten seconds.
      expect(store.count('inspect')).toBe(100 * round)
      await Promise.all(held.map((lease) => lease.release()))
      await clock.advance(10_000)
    }
  })

  test.each([['lose request'], ['lose reply'], ['fail'], ['refuse']] as const)(
    'makes no wait longer, and says nothing of a failure of its own: %s',
    async (fate) => {
      const { clock, store, locks, other } = scene()
      const held = await other.locks.acquire('k')
      let failures = 0
      locks.on('store-error', () => (failures += 1))
      store.always(fate, ['inspect'])
      const from = clock.monotonicMs()
      const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })), { stepMs: 1 })
      expect(clock.monotonicMs() - from).toBe(1000)
      expect(error).toMatchObject({ code: 'acquire-timeout', waitedMs: 1000, ahead: 0, holder: undefined })
      expect(error.message).toMatch(/go on without it\.$/)
      expect(failures).toBe(0)
      await held.release()
    },
  )

  test('takes a thenable of a store for the promise that it stands for', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const inspect = store.inspect.bind(store)
    store.inspect = (request) => {
      const page = inspect(request)
      // biome-ignore lint/suspicious/noThenProperty: this is what the test is about
      return { then: page.then.bind(page) } as typeof page
    }
    const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
    expect(error).toMatchObject({ holder: { owner: { label: 'test' } } })
    await held.release()
  })

  test('takes the answer of a store that answers at once', async () => {
    const clock = new FakeClock()
    const store = memoryStore({ now: clock.storeTime })
    const [one, other] = [startProcess(store, clock), startProcess(store, clock)]
    const held = await one.locks.acquire('k')
    const error = await clock.until(errorOf(other.locks.acquire('k', { wait: 1000 })))
    expect(error).toMatchObject({ holder: { heldMs: 1000 } })
    await held.release()
  })
})

test('a client of a web server does not read who holds the key', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('k')
  const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })))
  expect(error.message).toContain('(test)')
  expect(asHttpError(error)).toBe(error)
  expect(JSON.stringify(error)).not.toContain('owner')
  expect(error).toMatchObject({
    statusCode: 409,
    message:
      '"k" was not free within 1000 ms (last seen with 0 ahead). Wait longer with `wait`, or use a try… call to go on without it.',
    holder: { owner: { label: 'test' } },
  })
  await held.release()
})
