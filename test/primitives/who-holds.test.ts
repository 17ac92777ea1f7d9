import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { errorOf, scene } from '../engine/scene.ts'
import { places } from '../servers/places.ts'

test.concurrent.each(Object.entries(places))(
  'on %s the error of a call that waited in vain says who holds the key, and for how long',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-who-'))
    const place = await open(folder)
    const [holder, other] = await Promise.all([connect(place.url, { label: 'billing' }), connect(place.url)])
    try {
      const lease = await holder.acquire('k')
      const held = new RegExp(` It is held by \\S+:${process.pid} \\(billing\\), for [\\d.]+ m?s now\\.$`)
      expect(await errorOf(other.acquire('k', { wait: '50ms' }))).toMatchObject({
        code: 'acquire-timeout',
        key: 'k',
        ahead: 0,
        message: expect.stringMatching(held),
      })
      expect(await errorOf(other.acquire('k', { wait: 0 }))).toMatchObject({
        code: 'acquire-timeout',
        waitedMs: 0,
        message: expect.stringMatching(held),
      })
      await lease.release()
    } finally {
      await Promise.all([holder.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

describe('the look for the holder', () => {
  test('is one request for all who run out of patience together', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = Array.from({ length: 50 }, () => errorOf(locks.acquire('k', { wait: 1000 })))
    const errors = await clock.until(Promise.all(waiting))
    for (const { message } of errors) expect(message).toMatch(/ It is held by .*\(test\), for 1\.0 s now\.$/)
    expect(store.count('inspect')).toBe(1)
    await held.release()
  })

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
    expect(error.message).toMatch(/ It is held by .* now\.$/)
    await held.release()
  })

  test.each([['lose request'], ['fail'], ['refuse']] as const)(
    'costs a quarter of a second at most, and nothing else: %s',
    async (fate) => {
      const { clock, store, locks, other } = scene()
      const held = await other.locks.acquire('k')
      store.always(fate, ['inspect'])
      const from = clock.monotonicMs()
      const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })), { stepMs: 1 })
      expect(clock.monotonicMs() - from).toBeLessThanOrEqual(1250)
      expect(error).toMatchObject({ code: 'acquire-timeout', waitedMs: 1000, ahead: 0 })
      expect(error.message).toMatch(/go on without it\.$/)
      await held.release()
    },
  )
})
