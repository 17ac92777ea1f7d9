import fc from 'fast-check'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { LocalWaiter, Store, Ticket } from '../../../src/contract/store.ts'
import { memoryStore } from '../../../src/stores/memory/index.ts'

const TTL = 1000
const KEYS = ['a', 'b'] as const

const which = fc.nat()
const key = fc.constantFrom(...KEYS)
/** Longer than a tombstone, too: a key with tombstones has a room. */
const ms = fc.oneof({ weight: 4, arbitrary: fc.integer({ min: 1, max: TTL }) }, fc.constant(70_000))
const steps = fc.oneof(
  { weight: 12, arbitrary: fc.record({ do: fc.constant('come' as const), key }) },
  { weight: 10, arbitrary: fc.record({ do: fc.constant('release' as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('renew' as const), which }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('give up' as const), which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('pass' as const), ms }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('try' as const), key }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('read' as const), key }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('evict' as const), which }) },
)

describe('the local queue of the memory store', () => {
  test('serves, expires and forgets as the law does, and gives it a room in the same order', () => {
    let enrolled = 0
    let granted = 0
    fc.assert(
      fc.property(fc.array(steps, { minLength: 20, maxLength: 120 }), (history) => {
        const seen = new Comparison()
        for (const step of history) {
          seen.step(step)
          seen.compare()
        }
        enrolled += seen.enrolled
        granted += seen.granted
      }),
      { numRuns: 200 },
    )
    expect(enrolled).toBeGreaterThan(30)
    expect(granted).toBeGreaterThan(100)
  })

  test('is left by any of its waiters, and serves the others in order', () => {
    const { store, at } = storeAt(1000)
    const holder = ticketOf('k', 'holder')
    expect(store.take?.(holder, at())).toBeTypeOf('number')
    const waiters = ['0', '1', '2', '3', '4'].map((id) => new Waiter(ticketOf('k', id)))
    for (const waiter of waiters) expect(store.localQueue?.enter(waiter, at())).toBe(TTL)
    expect(waiters.map(({ ahead }) => ahead)).toEqual([0, 1, 2, 3, 4])
    for (const gone of [0, 2, 4, 4]) store.localQueue?.leave(waiters[gone] as Waiter)
    const clock = { monotonicMs: at }
    expect(store.giveBack?.(holder, clock)).toBe(true)
    expect(waiters.map(({ fence }) => fence !== undefined)).toEqual([false, true, false, false, false])
    expect(store.giveBack?.(ticketOf('k', '1'), clock)).toBe(false)
    expect(store.giveBack?.((waiters[1] as Waiter).ticket, clock)).toBe(true)
    expect(store.giveBack?.((waiters[3] as Waiter).ticket, clock)).toBe(true)
    expect(store.inspect({ prefix: '', cursor: undefined, count: 10 })).toMatchObject({ rooms: [] })
    const [first, second] = [waiters[1]?.fence ?? 0, waiters[3]?.fence ?? 0]
    expect(second).toBeGreaterThan(first)
  })

  test('is not for a free key, for readers, or for tickets with a minimum hold or a lock-delay', () => {
    const { store, at } = storeAt(1000)
    const enters = (key: string, ticket: Partial<Ticket> = {}) =>
      store.localQueue?.enter(new Waiter({ ...ticketOf(key, 'waiter'), ...ticket }), at()) !== undefined
    expect(enters('free')).toBe(false)
    void store.acquire({ ...ticketOf('read', 'reader'), limit: 10 })
    expect(enters('read')).toBe(false)
    void store.acquire({ ...ticketOf('delayed', 'holder'), lockDelayMs: 10 })
    expect(enters('delayed')).toBe(false)
    void store.acquire(ticketOf('taken', 'holder'))
    expect(enters('taken', { limit: 10 })).toBe(false)
    expect(enters('taken', { minHoldMs: 10 })).toBe(false)
    expect(enters('taken', { lockDelayMs: 10 })).toBe(false)
    expect(enters('taken')).toBe(true)
    expect(store.localQueue?.waiters('taken').length).toBe(1)
  })
})

/** Two memory stores to which the same happens. Waiters of the one use its local queue, those of the other the law. */
class Comparison {
  enrolled = 0
  granted = 0
  #ms = 1000
  readonly #local: Store
  readonly #law = memoryStore({ now: () => ({ ms: this.#ms, us: this.#ms * 1000 }) })
  /** All tickets that hold or wait, by id. */
  readonly #tickets = new Map<string, Ticket>()
  /** Those whose waiter waits in the local queue. */
  readonly #waiting = new Map<string, Waiter>()
  /** The last fence of a waiter, by key. */
  readonly #fences = new Map<string, number>()

  constructor() {
    const { store } = storeAt(0, () => this.#ms)
    this.#local = store
    for (const one of [this.#local, this.#law]) void one.listen?.(() => {})
  }

  step(step: typeof steps extends fc.Arbitrary<infer S> ? S : never): void {
    switch (step.do) {
      case 'come':
        return this.#come(step.key)
      case 'release': {
        const holder = this.#pick(step.which, 'holders')
        if (holder === undefined) return
        const direct = this.#local.giveBack?.(holder, { monotonicMs: () => this.#ms })
        if (direct !== true) void this.#local.release(releaseOf(holder), this.#ms)
        void this.#law.release(releaseOf(holder))
        this.#tickets.delete(holder.id)
        return
      }
      case 'renew': {
        const holder = this.#pick(step.which, 'holders')
        if (holder !== undefined) this.#both((store) => store.renew([holder], this.#ms))
        return
      }
      case 'give up': {
        const ticket = this.#pick(step.which, 'queue')
        if (ticket === undefined) return
        const waiter = this.#waiting.get(ticket.id)
        if (waiter === undefined) void this.#local.release(releaseOf(ticket), this.#ms)
        else this.#local.localQueue?.leave(waiter)
        void this.#law.release(releaseOf(ticket))
        this.#waiting.delete(ticket.id)
        this.#tickets.delete(ticket.id)
        return
      }
      case 'pass': {
        this.#ms += step.ms
        // The process asks about all its waiters. So in the law, all are heard of.
        const waiting = [...this.#tickets.values()].filter(({ id }) => this.#isQueued(id))
        for (const key of KEYS) this.#local.localQueue?.settle(key, this.#ms)
        const asked = waiting.filter(({ id }) => !this.#waiting.has(id))
        void this.#local.renew(asked, this.#ms)
        void this.#law.renew(waiting)
        return
      }
      case 'try': {
        const ticket = { ...this.#ticket(step.key), patienceMs: 0 }
        this.#both((store) => store.acquire(ticket, this.#ms))
        return
      }
      case 'read': {
        const ticket = { ...this.#ticket(step.key), limit: 1000 }
        this.#both((store) => store.acquire(ticket, this.#ms))
        return
      }
      case 'evict': {
        const ticket = this.#pick(step.which, 'queue') ?? this.#pick(step.which, 'holders')
        if (ticket !== undefined) this.#both((store) => store.evict({ ...ticket, reason: 'a test' }))
        return
      }
      default:
        step satisfies never
    }
  }

  compare(): void {
    for (const key of KEYS) {
      const [local, law] = [this.#local, this.#law].map((store) => roomOf(store, key))
      expect(local).toEqual(law)
    }
  }

  #come(key: string): void {
    const ticket = this.#ticket(key)
    if (this.#local.take?.(ticket, this.#ms) === undefined) {
      const waiter = new Waiter(ticket)
      waiter.onEnd = (end, fence = 0) => {
        this[end] += 1
        this.#waiting.delete(ticket.id)
        if (end === 'enrolled') return
        expect(fence).toBeGreaterThan(this.#fences.get(key) ?? 0)
        this.#fences.set(key, fence)
      }
      if (this.#local.localQueue?.enter(waiter, this.#ms) !== undefined) this.#waiting.set(ticket.id, waiter)
      else void this.#local.acquire(ticket, this.#ms)
    }
    void this.#law.acquire(ticket)
  }

  #ticket(key: string): Ticket {
    count += 1
    const ticket = ticketOf(key, `${count}`)
    this.#tickets.set(ticket.id, ticket)
    return ticket
  }

  #both(call: (store: Store) => unknown): void {
    call(this.#local)
    call(this.#law)
  }

  #isQueued(id: string): boolean {
    return KEYS.some((key) => roomOf(this.#law, key).queue.includes(id))
  }

  #pick(which: number, list: 'holders' | 'queue'): Ticket | undefined {
    const ids = KEYS.flatMap((key) => roomOf(this.#law, key)[list].map((one) => one.split(' ')[0] as string))
    return this.#tickets.get(ids[which % Math.max(1, ids.length)] ?? '')
  }
}

let count = 0

class Waiter implements LocalWaiter {
  readonly ticket: Ticket
  ahead = 0
  since = 0
  before: LocalWaiter | undefined
  behind: LocalWaiter | undefined
  fence: number | undefined
  onEnd: (end: 'granted' | 'enrolled', fence?: number) => void = () => {}

  constructor(ticket: Ticket) {
    this.ticket = ticket
  }

  granted(fence: number): void {
    this.fence = fence
    this.onEnd('granted', fence)
  }

  enrolled(): void {
    this.onEnd('enrolled')
  }
}

/** A memory store with the clock of the process, which shows what the test says. */
function storeAt(ms: number, at: () => number = () => ms) {
  const mocked = vi.spyOn(performance, 'now').mockImplementation(at)
  onTestFinished(() => mocked.mockRestore())
  return { store: memoryStore(), at }
}

function ticketOf(key: string, id: string): Ticket {
  return {
    key,
    id,
    units: 1,
    limit: 1,
    ttlMs: TTL,
    acceptMs: TTL,
    patienceMs: 1_000_000,
    minHoldMs: 0,
    lockDelayMs: 0,
    owner: '{}',
  }
}

function releaseOf({ key, id }: Ticket) {
  return { key, id, cancel: false }
}

function roomOf(store: Store, key: string) {
  const page = store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
  const { rooms } = page as Awaited<typeof page>
  const { holders = [], queue = [] } = rooms[0] ?? {}
  return {
    holders: holders.map(({ id, state, remainingMs }) => `${id} ${state} ${remainingMs}`),
    queue: queue.map(({ id }) => id),
  }
}
