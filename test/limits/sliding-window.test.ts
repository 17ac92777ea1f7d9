import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { connect, createLocks, type Locks, lockEvents } from '../../src/index.ts'
import { createLimit } from '../../src/limits/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf } from '../engine/scene.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const TEN = { points: 10, window: '1s' } as const

function locksInMemory(store = memoryStore()): Locks {
  const locks = createLocks(store)
  onTestFinished(() => locks.close())
  return locks
}

/** When the store gave each point, in milliseconds. A fence is made of this time. */
function pointsTaken(key: string): number[] {
  const at: number[] = []
  onTestFinished(
    lockEvents.on('acquired', (event) => {
      if (event.key === key) at.push(Number(event.fence) / 1000)
    }),
  )
  return at
}

describe('a sliding window', () => {
  test('lets no more begin in any stretch of time than there are points, also at the edge of two windows', async () => {
    const store = memoryStore()
    const limits = [0, 1].map(() =>
      createLimit(locksInMemory(store), 'exports', { concurrency: 100, rate: TEN }),
    )
    const taken = pointsTaken(':exports:ada')
    // One call at the beginning of the first window, nine at its end, and then as many as can.
    await limits[0]?.tryRun('ada', () => {})
    await sleep(900)
    await until('each point was there twice', async () => {
      await Promise.all(limits.map((limit) => limit.tryRun('ada', () => {})))
      return taken.length >= 20
    })
    const spans = taken.slice(10).map((at, index) => at - (taken[index] ?? at))
    expect(Math.min(...spans)).toBeGreaterThanOrEqual(1000)
  })

  test('is waited for, and says how long when the wait is too short', async () => {
    const limit = createLimit(locksInMemory(), 'exports', {
      concurrency: 3,
      rate: { points: 2, window: '2s' },
    })
    const taken = pointsTaken(':exports:ada')
    await limit.run('ada', () => {})
    await limit.run('ada', () => {})
    const error = await errorOf(limit.run('ada', { wait: 10 }, () => expect.unreachable()))
    expect(error).toMatchObject({ code: 'start-timeout', key: 'exports:ada' })
    expect(error['retryAfterMs']).toBeGreaterThan(10)
    expect(error['retryAfterMs']).toBeLessThanOrEqual(2001)
    expect(await limit.tryRun('ada', () => expect.unreachable())).toEqual({
      ran: false,
      reason: 'rate',
      retryAfterMs: expect.any(Number),
    })
    expect(await limit.run('bob', () => 'another key')).toBe('another key')
    expect(await limit.run('ada', () => 'later')).toBe('later')
    expect((taken[2] ?? 0) - (taken[0] ?? 0)).toBeGreaterThanOrEqual(2000)
  })

  test('has room for a call that costs several points when as many are free', async () => {
    const limit = createLimit(locksInMemory(), 'exports', {
      concurrency: 9,
      rate: { points: 5, window: '24h' },
    })
    expect(await limit.tryRun('ada', { points: 2 }, () => 1)).toMatchObject({ ran: true })
    expect(await limit.tryRun('ada', { points: 4 }, () => 2)).toMatchObject({ ran: false, reason: 'rate' })
    expect(await limit.tryRun('ada', { points: 3 }, () => 3)).toMatchObject({ ran: true })
    expect(await limit.tryRun('ada', () => 4)).toMatchObject({ ran: false, reason: 'rate' })
    expect(await errorOf(limit.tryRun('ada', { points: 6 }, () => 5))).toMatchObject({
      code: 'invalid-argument',
    })
  })

  test('keeps no caller out of a slot, whatever names users choose', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 9, window: '1h' } })
    for (const key of ['ada', ':ada', ':exports:ada', 'exports:ada'])
      expect(await limit.tryRun(key, () => key)).toEqual({ ran: true, value: key })
  })

  test('says of its own store what is wrong with it', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: TEN })
    const error = await errorOf(
      limit.run('ada', { signal: AbortSignal.abort(new Error('gone')) }, () => expect.unreachable()),
    )
    expect(error.message).toBe('gone')
    await locks.close()
    expect(await errorOf(limit.run('ada', () => expect.unreachable()))).toMatchObject({ code: 'closed' })
  })
})

// A store that cannot count permits has no sliding window.
const stores = Object.entries(places).filter(([name]) => name !== 'redlock')

test.concurrent.each(stores)('on %s two processes share a sliding window', async (_, open) => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-windows-'))
  const place = await open(folder)
  const clients = await Promise.all([connect(place.url), connect(place.url)])
  try {
    const limits = clients.map((locks) =>
      createLimit(locks, 'exports', { concurrency: 9, rate: { points: 5, window: '20s' } }),
    )
    let ran = 0
    const refusals: (number | undefined)[] = []
    for (let call = 0; call < 8; call += 1) {
      const outcome = await limits[call % 2]?.tryRun('ada', () => {})
      if (outcome?.ran) ran += 1
      else if (outcome?.reason === 'rate') refusals.push(outcome.retryAfterMs)
    }
    expect(ran).toBe(5)
    expect(refusals).toHaveLength(3)
    for (const retryAfterMs of refusals) {
      expect(retryAfterMs).toBeGreaterThan(0)
      expect(retryAfterMs).toBeLessThanOrEqual(20_500)
    }
    const brief = createLimit(clients[0] as Locks, 'brief', {
      concurrency: 1,
      rate: { points: 1, window: '2s' },
    })
    await brief.run('ada', () => {})
    let again = 0
    await until('the window has slid', async () => {
      if ((await brief.tryRun('ada', () => {})).ran) again += 1
      return again > 0
    })
  } finally {
    await Promise.all(clients.map((locks) => locks.close()))
    await place.close()
    rmSync(folder, { recursive: true, force: true })
  }
})
