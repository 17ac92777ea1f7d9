import { elapsedMs, type Instant } from '../base/clock.ts'
import { usableMs } from '../base/validity.ts'
import type { Exchange } from './instant.ts'

export interface LeaseOptions {
  readonly renew: boolean
  readonly maxHoldMs: number
  /** No event is told of this lease: it is one of ours beside the caller's key. */
  readonly quiet?: boolean | undefined
  /** It is the lease of a leader. */
  readonly campaign?: boolean | undefined
}

/**
 * How long a lease may be used: until `askedAt + usable(ttl)` of the latest request that the store has confirmed, and
 * not beyond its `maxHold`. Every method takes the moment it is asked about, so that one look at the clocks serves
 * several.
 *
 * A base class of the lease, and not an object that the lease has, because each further object costs time: when it is read, and
 * when the garbage collector copies it. For the same reason its times are whole milliseconds, rounded to the safe side. V8 keeps
 * whole numbers below 2^31 inside the lease, and makes an object for every other number.
 *
 * Its fields are only declared, and it has no method with `#`: V8 inlines the constructors of base classes only if these have
 * neither. That saves a tenth of a cycle on a free key in this process.
 */
export class LeaseDeadline {
  /** Replaced by an object, and never changed in place: several leases may share one. */
  declare options: LeaseOptions
  /** The confirmed request that reaches furthest: the moment before it was written, and how long it may be used from then. */
  declare private askedAtMs: number
  declare private askedAtWallMs: number
  declare protected usableMs: number
  declare private readonly sinceMs: number

  constructor({ monotonicMs, wallMs }: Instant, ttlMs: number, options: LeaseOptions) {
    this.options = options
    this.askedAtMs = Math.floor(monotonicMs)
    this.askedAtWallMs = Math.floor(wallMs)
    this.usableMs = Math.floor(usableMs(ttlMs))
    this.sinceMs = this.askedAtMs
  }

  confirm({ askedAt, answeredAt }: Exchange, ttlMs: number): void {
    const askedAtMs = Math.floor(askedAt.monotonicMs)
    const askedAtWallMs = Math.floor(askedAt.wallMs)
    const usable = Math.floor(usableMs(ttlMs))
    const { monotonicMs, wallMs } = answeredAt
    // A late answer to an earlier request may prove less than what is known by now. Both clocks say how much: after a jump of one of
    // them, a request with a shorter ttl may reach further than an earlier one with a longer ttl.
    const leftMs = usable - Math.max(monotonicMs - askedAtMs, wallMs - askedAtWallMs)
    if (leftMs <= this.confirmedMs(answeredAt)) return
    this.askedAtMs = askedAtMs
    this.askedAtWallMs = askedAtWallMs
    this.usableMs = usable
  }

  /** How much is left of the time that the store has confirmed. The time that has passed is that of {@link elapsedMs}. */
  confirmedMs(at: Instant): number {
    return this.usableMs - Math.max(at.monotonicMs - this.askedAtMs, at.wallMs - this.askedAtWallMs)
  }

  /** How much is left for the holder: not beyond `maxHold`. */
  leftMs(at: Instant): number {
    return Math.min(this.confirmedMs(at), this.endMs() - at.monotonicMs)
  }

  isOverAt(at: Instant): boolean {
    return this.leftMs(at) <= 0
  }

  /**
   * The end on the monotonic clock. It counts from `at` and uses both clocks: the monotonic clock alone would be late by as
   * long as the machine slept.
   */
  deadlineAt(at: Instant): number {
    return at.monotonicMs + this.leftMs(at)
  }

  /** Whether the lease was asked for before this moment of the monotonic clock. `Infinity` is no moment. */
  isOlderThan(monotonicMs: number): boolean {
    return monotonicMs !== Number.POSITIVE_INFINITY && this.sinceMs <= monotonicMs
  }

  /** Whether `maxHold` is over. */
  isUsedUp(at: Instant): boolean {
    return at.monotonicMs >= this.endMs()
  }

  heldMs(at: Instant): number {
    return at.monotonicMs - this.sinceMs
  }

  /** `maxHold` on the monotonic clock. One sum each time: split, its rest may be above 0 when its time has come. */
  private endMs(): number {
    return this.sinceMs + this.options.maxHoldMs
  }
}

/** Whether nothing is left of a ttl that counts from `askedAt`. */
export function isUsedUp(ttlMs: number, askedAt: Instant, at: Instant): boolean {
  return usableMs(ttlMs) <= elapsedMs(askedAt, at)
}
