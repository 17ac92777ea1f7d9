import { describe, expect, test } from 'vitest'
import type { RenewAnswer, Store } from '../../src/contract/store.ts'
import { Engine } from '../../src/engine/engine.ts'
import type { Lease } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock } from './fake-clock.ts'
import { outcomeOf, scene, startProcess } from './scene.ts'
import { Letter, ScriptedStore } from './scripted-store.ts'

const TTL = 30_000

describe('a lease is renewed', () => {
  test('at about a third of its ttl, again and again, under the same fence', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    for (let round = 1; round <= 20; round += 1) {
      const from = clock.monotonicMs()
      await clock.untilTrue(() => store.count('renew') === round)
      const pause = clock.monotonicMs() - from
      expect(pause).toBeGreaterThanOrEqual((TTL / 3) * 0.89)
      expect(pause).toBeLessThanOrEqual((TTL / 3) * 1.11)
      expect(lease.state).toBe('held')
    }
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id, fence: lease.fence, state: 'held' }] }])
    await lease.release()
  })

  test('a little earlier or later from process to process, so they do not all ask at once', async () => {
    const pauses = await Promise.all(
      [0, 0.5, 1].map(async (chance) => {
        const clock = new FakeClock()
        const store = new ScriptedStore(memoryStore({ now: clock.storeTime }))
        const engine = new Engine(store, { clock, chance: () => chance })
        const held = await engine.acquire(requestFor('k'))
        const from = clock.monotonicMs()
        await clock.untilTrue(() => store.count('renew') > 0)
        await held?.release()
        return clock.monotonicMs() - from
      }),
    )
    expect(new Set(pauses).size).toBe(3)
    expect(Math.max(...pauses) - Math.min(...pauses)).toBeGreaterThanOrEqual(TTL / 3 / 10)
  })

  test('together with all others of the process: 10,000 leases cost a few requests and not 10,000', async () => {
    const { clock, store, locks } = scene()
    const leases = await Promise.all(
      Array.from({ length: 10_000 }, (_, index) => locks.acquire(`k${index}`, { ttl: TTL })),
    )
    await clock.advance(TTL)
    expect(leases.every((lease) => lease.state === 'held')).toBe(true)
    expect(store.count('renew')).toBeLessThanOrEqual(4 * Math.ceil(10_000 / 500))
    const asked = store.sent.filter(({ verb }) => verb === 'renew').map(({ tickets }) => tickets.length)
    expect(Math.max(...asked)).toBeLessThanOrEqual(500)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('together also when they were taken at different times', async () => {
    const { clock, store, locks } = scene()
    const leases = []
    for (let index = 0; index < 50; index += 1) {
      leases.push(await locks.acquire(`k${index}`, { ttl: TTL }))
      await clock.advance(37)
    }
    const before = store.count('renew')
    await clock.advance(10 * TTL)
    // 50 leases with 31 renewals each. If the renewals share requests, that is 31 requests or a few more.
    expect(store.count('renew') - before).toBeLessThanOrEqual(40)
    expect(leases.every((lease) => lease.state === 'held')).toBe(true)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test.each([
    ['a request takes 1 ms', (_: number) => 1, 3 * Math.ceil(10_000 / 500)],
    ['cold code takes 20 µs for each lease', (tickets: number) => tickets / 50, 10_000 / 32],
    ['warm code takes 1 µs for each lease', (tickets: number) => tickets / 1000, 3 * Math.ceil(10_000 / 400)],
  ])('in slices: no round goes on for longer than 5 ms, where %s', async (_, costMs, most) => {
    const { clock, locks, store } = scene()
    const leases = await Promise.all(
      Array.from({ length: 10_000 }, (_, index) => locks.acquire(`k${index}`, { ttl: TTL })),
    )
    const rounds: number[] = []
    const startTimer = clock.startTimer.bind(clock)
    clock.startTimer = (delayMs, fire) =>
      startTimer(delayMs, () => {
        const from = clock.monotonicMs()
        fire()
        rounds.push(clock.monotonicMs() - from)
      })
    const renew = store.renew.bind(store)
    store.renew = (tickets) => {
      clock.block(costMs(tickets.length))
      return renew(tickets)
    }
    const before = store.count('renew')
    await clock.advance(TTL)
    expect(Math.max(...rounds)).toBeLessThanOrEqual(5)
    expect(store.count('renew') - before).toBeLessThanOrEqual(most)
    expect(leases.every((lease) => lease.state === 'held')).toBe(true)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('until it is released, and not after it', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.advance(TTL)
    await lease.release()
    const before = store.sent.length
    await clock.advance(10 * TTL)
    expect(store.sent.length).toBe(before)
    expect(clock.timers.running).toBe(0)
  })

  test('not at all with renew: false, and is over after its ttl', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    const signal = lease.signal
    // The engine has asked once whether the lease was evicted before wakes flowed. That moves no deadline.
    await clock.advance(1)
    expect(store.count('renew')).toBe(1)
    await clock.advance(0.94 * TTL - 1)
    expect(lease.state).toBe('held')
    await clock.advance(0.06 * TTL)
    expect(signal.aborted).toBe(true)
    expect(lease.state).toBe('lost')
    expect(store.count('renew')).toBe(1)
  })

  test('until maxHold has passed, and then the stuck holder is told and the next one gets the key', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, maxHold: '2m' })
    const signal = lease.signal
    const next = other.locks.acquire('k', { wait: '10m' })
    await clock.advance(119_000)
    expect(lease.state).toBe('held')
    await clock.advance(1000)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    const heir = await clock.until(next, { withinMs: TTL })
    await heir.release()
    await lease.release()
  })

  test('under the ttl that extend set last', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await lease.extend('2m')
    expect(lease.remainingMs).toBeGreaterThan(110_000)
    const before = store.count('renew')
    await clock.advance(35_000)
    expect(store.count('renew')).toBe(before)
    await clock.advance(10_000)
    expect(store.count('renew')).toBe(before + 1)
    expect(store.sent.at(-1)?.tickets[0]?.ttlMs).toBe(120_000)
    await lease.release()
  })
})

describe('an answer that has arrived for several leases', () => {
  // The listener of one works until after the old deadlines of the others, and then looks at them.
  test.each([
    ['over a network', (real: Store) => new ScriptedStore(real)],
    ['at once', (real: Store) => real],
  ])('%s counts for the others while a listener of one works', async (_how, storeOf) => {
    const clock = new FakeClock()
    // No message tells of the eviction, so one renewal asks about both.
    const real = Object.assign(memoryStore({ now: clock.storeTime }), { listen: () => () => {} })
    const { locks } = startProcess(storeOf(real), clock)
    const leases = await Promise.all(
      Array.from({ length: 9 }, (_, index) => locks.acquire(`k${index}`, { ttl: TTL })),
    )
    const [evicted, ...others] = leases.splice(4, 1).concat(leases) as [Lease, ...Lease[]]
    const seen: string[] = []
    evicted.signal.addEventListener('abort', () => {
      clock.block(0.8 * TTL)
      seen.push(...others.map(({ state }) => state))
    })
    await clock.advance(TTL / 2)
    await real.evict({ key: evicted.key, id: evicted.id, reason: 'a test' })
    await clock.untilTrue(() => seen.length > 0)
    expect(new Set(seen)).toEqual(new Set(['jeopardy']))
    await clock.advance(0)
    expect(others.map(({ state }) => state)).not.toContain('lost')
    await Promise.all(others.map((lease) => lease.release()))
    await locks.close()
  })
})

describe('a renewal that is not answered', () => {
  test('is repeated inside the budget, so a lease survives an outage that is shorter than it', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('lose request')
    await clock.advance(0.8 * TTL)
    expect(store.count('renew')).toBeGreaterThanOrEqual(3)
    store.always('answer')
    await clock.advance(0.15 * TTL)
    expect(lease.state).toBe('held')
    expect(lease.remainingMs).toBeGreaterThan(TTL / 2)
    await lease.release()
  })

  test('is repeated with pauses, so a store that fails at once is not flooded', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('fail', ['renew'])
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    expect(store.count('renew')).toBeGreaterThanOrEqual(10)
    expect(store.count('renew')).toBeLessThanOrEqual(60)
  })

  test('counts when its reply comes after all, while others are on their way', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const first = new Letter()
    store.next('renew', first)
    store.always('lose request', ['renew'])
    await clock.untilTrue(() => store.count('renew') === 3)
    first.arrive().reply()
    await clock.advance(0)
    expect(lease.state).toBe('held')
    expect(lease.remainingMs).toBeGreaterThan(0.75 * TTL)
    await lease.release()
  })

  test('is not repeated before its time because another round comes while it is on its way', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    // Each of these ends in a round of its own.
    const others = [10_700, 11_000, 11_500].map((ttl) => locks.acquire(`other-${ttl}`, { ttl, renew: false }))
    const ending = await Promise.all(others)
    store.next('renew', 'lose request')
    await clock.advance(TTL / 3 + 1500)
    expect(ending.map(({ state }) => state)).toEqual(['lost', 'lost', 'lost'])
    expect(store.count('renew')).toBe(1)
    await clock.advance(600)
    expect(store.count('renew')).toBe(2)
    await Promise.all([lease, ...ending].map((one) => one.release()))
  })

  test('of one batch does not hold up the leases of another', async () => {
    const { clock, store, locks } = scene()
    const leases = await Promise.all(
      Array.from({ length: 600 }, (_, index) => locks.acquire(`k${index}`, { ttl: TTL })),
    )
    store.next('renew', 'lose request')
    await clock.advance(TTL / 3 + 5000)
    expect(leases.filter((lease) => lease.remainingMs < TTL / 2)).toEqual([])
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('that was not even a promise (a store that throws at once) is repeated as well', async () => {
    const clock = new FakeClock()
    const real = memoryStore({ now: clock.storeTime })
    let broken = false
    const engine = new Engine(
      {
        ...bound(real),
        renew: (tickets) => {
          if (broken) throw new Error('database is locked')
          return real.renew(tickets)
        },
      },
      { clock, chance: () => 0.5 },
    )
    const lease = await engine.acquire(requestFor('k'))
    broken = true
    await clock.advance(0.8 * TTL)
    broken = false
    await clock.advance(0.15 * TTL)
    expect(lease?.state).toBe('held')
    expect(await outcomeOf(lease?.release() ?? Promise.reject())).toEqual({ value: undefined })
  })
})

function requestFor(key: string) {
  return {
    ticket: {
      key,
      id: `${key}-1`,
      units: 1,
      limit: 1,
      ttlMs: TTL,
      acceptMs: 3000,
      patienceMs: 0,
      minHoldMs: 0,
      lockDelayMs: 0,
      owner: '{}',
    },
    waitMs: 0,
    signal: undefined,
    lease: { renew: true, maxHoldMs: Number.POSITIVE_INFINITY },
    watch: undefined,
  }
}

function bound(store: ReturnType<typeof memoryStore>) {
  return {
    name: store.name,
    acquire: store.acquire.bind(store),
    release: store.release.bind(store),
    inspect: store.inspect.bind(store),
    evict: store.evict.bind(store),
    close: store.close.bind(store),
  }
}

test('a lease of which a renewal learns nothing is asked about again at once, and the others are not', async () => {
  const { clock, locks, store } = scene()
  const [known, unknown] = [await locks.acquire('known'), await locks.acquire('unknown')]
  const renew = store.real.renew.bind(store.real)
  const asked: string[][] = []
  store.real.renew = (tickets) => {
    asked.push(tickets.map(({ key }) => key).sort())
    const answers = [...(renew(tickets) as RenewAnswer[])]
    if (asked.length === 1) delete answers[tickets.findIndex(({ key }) => key === 'unknown')]
    return answers
  }
  await clock.untilTrue(() => asked.length === 1, { withinMs: 15_000 })
  await clock.untilTrue(() => asked.length === 2, { withinMs: 200 })
  expect(asked).toEqual([['known', 'unknown'], ['unknown']])
  await Promise.all([known.release(), unknown.release()])
})
