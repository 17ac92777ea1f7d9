import { assert } from '../base/assert.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { LocalQueue, LocalWaiter, Ticket } from '../contract/store.ts'
import type { Renewable } from './renewable.ts'
import type { RenewalLoop } from './renewal-loop.ts'
import type { Bucket } from './timer-wheel.ts'

/**
 * The keys that calls wait for in the {@link LocalQueue} of a store. Nobody has to ask for the waiters, only for the key: once its
 * holder expires, somebody has to have the store admit the next one. That is one member of the renewal loop for each key,
 * however many wait.
 */
export class LocalWaits {
  readonly #renewals: RenewalLoop
  readonly #keys = new Map<string, AwaitedKey>()
  #untold: (() => void)[] = []
  readonly #tellGrants = (): void => this.tellGrants()

  constructor(renewals: RenewalLoop) {
    this.#renewals = renewals
  }

  /** How many wait. */
  get size(): number {
    let size = 0
    for (const { waiters } of this.#keys.values()) size += waiters
    return size
  }

  /** One more waits for the key of this ticket. `leftMs`: how much time is left until its holder expires. */
  begin(queue: LocalQueue, ticket: Ticket, leftMs: number, now: number): void {
    const known = this.#keys.get(ticket.key)
    if (known !== undefined) {
      known.waiters += 1
      return
    }
    const awaited = new AwaitedKey(queue, ticket, now + Math.min(leftMs, LOOK_MS))
    this.#keys.set(ticket.key, awaited)
    this.#renewals.schedule(awaited, now)
  }

  /** One waits no longer. `heldUntil`: given if it holds the key now; its lease ends then unless it is renewed. */
  end({ key }: Ticket, heldUntil: number = Number.POSITIVE_INFINITY): void {
    const awaited = this.#keys.get(key)
    if (awaited === undefined) return
    awaited.waiters -= 1
    if (awaited.waiters > 0) {
      if (heldUntil < awaited.dueAt) this.#bringForward(awaited, heldUntil)
      return
    }
    this.#keys.delete(key)
    this.#renewals.remove(awaited)
  }

  /** Tells listeners of a grant at the end of this tick: a listener must not run inside of the release that grants the key. */
  tellSoon(tell: () => void): void {
    this.#untold.push(tell)
    if (this.#untold.length === 1) outsideOfCallers(() => void SOON.then(this.#tellGrants))
  }

  /** Tells of all grants that listeners have not heard of. `close()` calls it, so that no lease is told as released first. */
  tellGrants(): void {
    const untold = this.#untold
    this.#untold = []
    for (const tell of untold) tell()
  }

  #bringForward(awaited: AwaitedKey, dueAt: number): void {
    awaited.dueAt = dueAt
    this.#renewals.schedule(awaited)
  }

  /** All who wait for these keys. A copy, because what is done with one may remove others. Other engines of the store have some of them. */
  list(): LocalWaiter[] {
    return [...this.#keys.values()].flatMap(({ queue, ticket }) => queue.waiters(ticket.key))
  }
}

/** A key that somebody waits for. */
class AwaitedKey implements Renewable {
  readonly kind = 'local wait'
  readonly awaited = true
  readonly slackMs = 0
  readonly queue: LocalQueue
  /** The ticket of any of the waiters. */
  readonly ticket: Ticket
  waiters = 1
  dueAt: number
  bucket: Bucket<Renewable> | undefined
  previous: Renewable | undefined
  next: Renewable | undefined

  constructor(queue: LocalQueue, ticket: Ticket, dueAt: number) {
    this.queue = queue
    this.ticket = ticket
    this.dueAt = dueAt
  }

  due({ monotonicMs }: Instant): boolean {
    const leftMs = this.queue.settle(this.ticket.key, monotonicMs)
    this.dueAt = monotonicMs + Math.min(leftMs, LOOK_MS)
    return false
  }

  answered(): void {
    assert(false, 'a key is renewed')
  }

  unanswered(): void {
    assert(false, 'a key is renewed')
  }
}

/** A holder of another engine may have a shorter ttl than the one before it. */
const LOOK_MS = 2000
const SOON: Promise<void> = Promise.resolve()
