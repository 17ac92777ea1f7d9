import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { ReleaseRequest, Store, Ticket } from '../../src/contract/store.ts'
import { connect, createLocks, type Locks, lockEvents } from '../../src/index.ts'
import { createLimit } from '../../src/limits/index.ts'
import { KnownRefusals } from '../../src/limits/known-refusals.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { awakeMs } from '../base/measured.ts'
import { errorOf } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const TEN = { points: 10, window: '1s' } as const

function locksInMemory(store: Store = memoryStore()): Locks {
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

  test('says when a call can begin although other processes have fewer points, as during a deployment', async () => {
    const store = memoryStore()
    const limitOf = (points: number) =>
      createLimit(locksInMemory(store), 'api', { concurrency: 9, rate: { points, window: '10s' } })
    const [before, after] = [limitOf(10), limitOf(2)]
    for (let call = 0; call < 2; call += 1)
      expect(await after.tryRun('ada', () => 1)).toMatchObject({ ran: true })
    for (const limit of [before, after]) {
      const refusal = await limit.tryRun('ada', () => 2)
      expect(refusal).toMatchObject({ ran: false, reason: 'rate' })
      expect('retryAfterMs' in refusal && refusal.retryAfterMs).toBeGreaterThan(9000)
    }
  })

  test('keeps no caller out of a slot, whatever names users choose', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 9, window: '1h' } })
    for (const key of ['ada', ':ada', ':exports:ada', 'exports:ada'])
      expect(await limit.tryRun(key, () => key)).toEqual({ ran: true, value: key })
  })

  test('takes keys that are shorter by one character than those of a limit without a window', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 9, window: '1h' } })
    expect(await limit.tryRun('x'.repeat(1015), () => 'ran')).toMatchObject({ value: 'ran' })
    const slots: string[] = []
    onTestFinished(locks.on('acquired', ({ key }) => slots.push(key)))
    const error = await errorOf(limit.run('x'.repeat(1016), () => expect.unreachable()))
    expect(error.message).toBe('Expected `key` to have at most 1015 characters, got 1016.')
    expect(slots).toEqual([])
  })

  test('does not ask the store again while it is known to refuse', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 2, window: '1h' } })
    for (let call = 0; call < 2; call += 1) await limit.run('ada', () => {})
    const first = await limit.tryRun('ada', () => expect.unreachable())
    const looks = vi.spyOn(locks, 'peek')
    const slots = pointsTaken('exports:ada')
    const again = await limit.tryRun('ada', () => expect.unreachable())
    const error = await errorOf(limit.run('ada', { wait: '1m' }, () => expect.unreachable()))
    expect(slots).toEqual([])
    expect(looks).not.toHaveBeenCalled()
    for (const refusal of [again, error]) {
      expect(refusal).toMatchObject({ retryAfterMs: expect.any(Number) })
      expect(refusal['retryAfterMs' as keyof typeof refusal]).toBeGreaterThan(3_500_000)
    }
    expect(again).toEqual({ ...first, retryAfterMs: expect.any(Number) })
    expect(error).toMatchObject({ code: 'start-timeout', key: 'exports:ada' })
    expect(await limit.tryRun('bob', () => 'another key')).toMatchObject({ ran: true })
  })

  test('notices within about a second that its points were given back', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 1, window: '1h' } })
    await limit.run('ada', () => {})
    expect(await limit.tryRun('ada', () => {})).toMatchObject({ ran: false })
    await locks.evictAll(':exports:ada', { reason: 'a new month' })
    const tookMs = await awakeMs(() =>
      until('a call may begin', async () => (await limit.tryRun('ada', () => {})).ran),
    )
    expect(tookMs).toBeLessThan(5000)
  })

  test('asks the store once for all calls that are refused at the same time', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1000, rate: { points: 5, window: '1h' } })
    const looks = vi.spyOn(locks, 'peek')
    const outcomes = await Promise.all(Array.from({ length: 500 }, () => limit.tryRun('ada', () => {})))
    expect(outcomes.filter((outcome) => outcome.ran)).toHaveLength(5)
    expect(looks).toHaveBeenCalledTimes(1)
  })

  test('refuses nobody for a point that came back before the store was asked until when', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 2, window: '1h' } })
    for (let call = 0; call < 2; call += 1) await limit.run('ada', () => {})
    const peek = locks.peek.bind(locks)
    vi.spyOn(locks, 'peek').mockImplementationOnce(async (key) => {
      const view = await peek(key)
      return view && { ...view, holders: view.holders.slice(1) }
    })
    expect(await limit.tryRun('ada', () => {})).toEqual({ ran: false, reason: 'rate', retryAfterMs: 0 })
    await locks.evictAll(':exports:ada', { reason: 'a new month' })
    expect(await limit.tryRun('ada', () => {})).toMatchObject({ ran: true })
  })

  test.each([
    ['a point of another process on etcd, which took it 8 s ago', 8000, 2000],
    ['a clock that is behind by 0.4 s more than the window', 10_401, 400],
    ['a clock that is behind by a day', 86_400_000, 10_000],
    ['a clock that is ahead', 0, 10_000],
  ])(
    'asks again when the point is back, by its age if the store says nothing else: %s',
    async (_, heldMs, ms) => {
      const locks = locksInMemory()
      const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 1, window: '10s' } })
      await limit.run('ada', () => {})
      const peek = locks.peek.bind(locks)
      vi.spyOn(locks, 'peek').mockImplementation(async (key) => {
        const view = await peek(key)
        const holders = view?.holders.map((holder) => ({ ...holder, heldMs, remainingMs: 10_000 })) ?? []
        return view && { ...view, holders }
      })
      const refusal = await limit.tryRun('ada', () => expect.unreachable())
      expect(refusal).toMatchObject({ ran: false, reason: 'rate' })
      expect('retryAfterMs' in refusal && Math.round((refusal.retryAfterMs ?? 0) / 100) * 100).toBe(ms)
    },
  )

  test('remembers the refusals of ten thousand keys, and forgets those first that it has known for longest', () => {
    const known = new KnownRefusals()
    const askedAt = performance.now()
    for (let key = 0; key <= 10_000; key += 1) {
      known.add(String(key), { units: 1, askedAt, untilFreeMs: 60_000 })
    }
    expect(known.untilFreeMs('0', 1)).toBeUndefined()
    expect(known.untilFreeMs('1', 1)).toBeGreaterThan(50_000)
    expect(known.untilFreeMs('10000', 1)).toBeGreaterThan(50_000)
    expect(known.untilFreeMs('10000', 2)).toBeUndefined()
    known.add('later', { units: 1, askedAt: askedAt + 1000, untilFreeMs: 60_000 })
    known.add('bob', { units: 1, askedAt: askedAt - 10, untilFreeMs: 5 })
    expect([known.untilFreeMs('1', 1), known.untilFreeMs('bob', 1)]).toEqual([undefined, undefined])
  })

  test('gives up a point that the caller does not wait for any more', async () => {
    const points: string[] = []
    const network = new (class extends ScriptedStore {
      override acquire(ticket: Ticket) {
        if (!ticket.key.startsWith(':')) return super.acquire(ticket)
        points.push('asked for')
        return new Promise<never>(() => {})
      }
      override release(request: ReleaseRequest) {
        if (request.key.startsWith(':')) points.push('given up')
        return super.release(request)
      }
    })(memoryStore())
    const limit = createLimit(locksInMemory(network), 'exports', { concurrency: 1, rate: TEN })
    const error = await errorOf(limit.run('ada', { wait: 50 }, () => expect.unreachable()))
    expect(error).toMatchObject({ code: 'store-unavailable', key: 'exports:ada' })
    expect(points).toEqual(['asked for', 'given up'])
  })

  test('says what is wrong with a call, also while it is known to refuse', async () => {
    const locks = locksInMemory()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { points: 1, window: '1h' } })
    const wrong: readonly [object, string][] = [
      [{ ttl: 1 }, 'invalid-argument'],
      [{ renew: 'no' }, 'invalid-argument'],
      [{ maxHold: 0 }, 'invalid-argument'],
      [{ signal: {} }, 'invalid-argument'],
    ]
    await limit.run('ada', () => {})
    expect(await limit.tryRun('ada', () => expect.unreachable())).toMatchObject({ reason: 'rate' })
    for (const [options, code] of wrong) {
      expect(await errorOf(limit.tryRun('ada', options, () => expect.unreachable()))).toMatchObject({ code })
      expect(await errorOf(limit.run('ada', options, () => expect.unreachable()))).toMatchObject({ code })
    }
    await locks.close()
    expect(await errorOf(limit.tryRun('ada', () => expect.unreachable()))).toMatchObject({ code: 'closed' })
    expect(await errorOf(limit.run('ada', { wait: 0 }, () => expect.unreachable()))).toMatchObject({
      code: 'closed',
    })
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
      rate: { points: 1, window: '12s' },
    })
    const other = createLimit(clients[1] as Locks, 'brief', {
      concurrency: 1,
      rate: { points: 1, window: '12s' },
    })
    await brief.run('ada', () => {})
    // A refusal is remembered for a second, and says less for as long without the store.
    await until('the other process knows that a part of the window is over', async () => {
      const outcome = await other.tryRun('ada', () => expect.unreachable())
      return !outcome.ran && outcome.reason === 'rate' && (outcome.retryAfterMs ?? 0) < 11_000
    })
    expect(await other.run('ada', { wait: '60s' }, () => 'the window has slid')).toBe('the window has slid')
  } finally {
    await Promise.all(clients.map((locks) => locks.close()))
    await place.close()
    rmSync(folder, { recursive: true, force: true })
  }
})
