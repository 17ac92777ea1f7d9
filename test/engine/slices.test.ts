import { describe, expect, test } from 'vitest'
import type { RenewAnswer } from '../../src/contract/store.ts'
import type { Lease, Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { boundStore } from '../stores/bound-store.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { type Scene, scene, startProcess } from './scene.ts'

const TTL = 30_000
/** More than two batches of the renewal loop. */
const LEASES = 1200

interface Stage {
  readonly clock: FakeClock
  readonly locks: Locks
  /** From now on the store is of no use to any lease. */
  strike(): void
  heal(): void
}

/** Every lease expires when the loop looks at it, because no renewal is answered. */
function silentStore(): Stage {
  const { clock, locks, store }: Scene = scene()
  return {
    clock,
    locks,
    strike: () => store.always('lose request', ['renew']),
    heal: () => store.always('answer', ['renew']),
  }
}

/** The answers come in the same call, and say that the store knows nobody. */
function forgetfulStore(): Stage {
  const clock = new FakeClock()
  const real = memoryStore({ now: clock.storeTime })
  let forgets = false
  const renew = (...[tickets]: Parameters<typeof real.renew>): readonly RenewAnswer[] => {
    const answers = real.renew(tickets) as readonly RenewAnswer[]
    return forgets ? answers.map(() => ({ tag: 'gone', evicted: false })) : answers
  }
  const { locks } = startProcess({ ...boundStore(real), renew }, clock)
  const set = (value: boolean) => () => {
    forgets = value
  }
  return { clock, locks, strike: set(true), heal: set(false) }
}

async function take(locks: Locks): Promise<Lease[]> {
  const taken = Array.from({ length: LEASES }, (_, index) => locks.acquire(`k${index}`, { ttl: TTL }))
  return Promise.all(taken)
}

/** Counts how often the signal of each lease aborts. */
function abortsOf(leases: readonly Lease[]): number[] {
  const aborts = leases.map(() => 0)
  for (const [index, { signal }] of leases.entries())
    signal.addEventListener('abort', () => (aborts[index] = (aborts[index] ?? 0) + 1))
  return aborts
}

describe.each([
  ['expire', silentStore],
  ['are unknown to a store that answers at once', forgetfulStore],
] as const)('while more leases %s than a round looks at in one go, a listener of the first', (_, open) => {
  test('may release all others: each ends once, and the loop renews what comes next', async () => {
    const { clock, locks, strike, heal } = open()
    const leases = await take(locks)
    const aborts = abortsOf(leases)
    let released: Promise<unknown> | undefined
    leases[0]?.signal.addEventListener('abort', () => {
      released = Promise.all(leases.map((lease) => lease.release()))
    })
    strike()
    await clock.advance(TTL)
    expect(released).toBeDefined()
    await released
    expect(aborts.every((count) => count <= 1)).toBe(true)
    expect(leases.filter(({ state }) => state === 'held' || state === 'jeopardy')).toEqual([])
    heal()
    const next = await locks.acquire('new', { ttl: TTL })
    await clock.advance(2 * TTL)
    expect(next.state).toBe('held')
    await next.release()
  })

  test('may close the locks: all end, and no timer is left', async () => {
    const { clock, locks, strike } = open()
    const leases = await take(locks)
    const aborts = abortsOf(leases)
    let closed: Promise<void> | undefined
    leases[0]?.signal.addEventListener('abort', () => {
      closed = locks.close()
    })
    strike()
    await clock.advance(TTL)
    await closed
    expect(aborts).toEqual(leases.map(() => 1))
    await settled()
    expect(clock.timers.running).toBe(0)
  })

  test('may give up waiters that are due in the same round', async () => {
    const { clock, locks, strike } = open()
    const leases = await take(locks)
    const givesUp = new AbortController()
    const waits = leases
      .slice(0, 600)
      .map(({ key }) =>
        locks.acquire(key, { signal: givesUp.signal, wait: '10m' }).catch((error: Error) => error.name),
      )
    leases[0]?.signal.addEventListener('abort', () => givesUp.abort())
    await settled()
    strike()
    await clock.advance(TTL)
    expect(new Set(await Promise.all(waits))).toEqual(new Set(['AbortError']))
    await Promise.all(leases.map((lease) => lease.release()))
  })
})
