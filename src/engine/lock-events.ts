import type { Owner } from '../base/owner.ts'
import type { LossReason } from '../errors.ts'

/**
 * The events of locks, by name. `locks.on(event, listener)` hears those of one `createLocks`, and `lockEvents.on(…)` those of
 * the whole process. Each event is also published on a `node:diagnostics_channel`, named `holdfast:` and the event.
 *
 * Every request ends in exactly one of `acquired`, `busy`, `timeout` and `withdrawn`; every lease (`acquired` or `adopted`)
 * in exactly one of `released`, `lost` and `detached`, unless its process ends before. All durations are in milliseconds.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 *
 * const locks = createLocks(memoryStore())
 * const stop = locks.on('lost', ({ key, fence, reason }) => console.error(`lost ${key} under ${fence}: ${reason}`))
 * await locks.close()
 * stop()
 * ```
 */
export interface LockEvents {
  /** A call asks for a key. This is the only event that is always told in the async context of the caller. */
  readonly requested: OfTicket<'requested'> & {
    /** How long the caller waits for it at most; 0 for a try. */
    readonly waitMs: number
    readonly ttlMs: number
    /** Whether the call is a campaign for an election, which begins to wait for its next term. */
    readonly campaign: boolean
  }
  /** The key is taken, and the request has a place in the queue. Told once for each request. */
  readonly queued: OfTicket<'queued'> & { readonly ahead: number }
  /** Not free, for a caller that does not wait. */
  readonly busy: OfTicket<'busy'>
  /** A request got its key, and a lease begins. */
  readonly acquired: OfLease<'acquired'> & {
    /** From the call until the store granted the key. */
    readonly waitedMs: number
    /** Whether the request waited in the queue. */
    readonly queued: boolean
    /**
     * The hand-over: from the wake that announced the turn until the store confirmed it. `undefined` if no wake came: the key
     * was free, the store sends no wakes, or the wake was lost and the turn was found by asking.
     */
    readonly wokenMs: number | undefined
  }
  /** Not free within `wait`. */
  readonly timeout: OfTicket<'timeout'> & {
    readonly waitedMs: number
    /** How many requests were ahead when the store last said so. */
    readonly ahead: number | undefined
  }
  /** The request ended without the key, for another reason than that the key was not free in time. */
  readonly withdrawn: OfTicket<'withdrawn'> & {
    readonly waitedMs: number
    readonly reason: Withdrawal
    /** The error with which the caller's promise rejects. */
    readonly error: unknown
  }
  /** This process continues a lease that another process began. */
  readonly adopted: OfLease<'adopted'>
  /** The store confirmed a renewal. */
  readonly renewed: OfLease<'renewed'> & {
    /** How long the lease lasts from now, if no further renewal succeeds. */
    readonly remainingMs: number
    /** How long the store took to answer. */
    readonly tookMs: number
  }
  /**
   * Less than half of the ttl is left, because a renewal failed or is overdue. It is noticed when a renewal is sent or fails,
   * which is every two seconds by then. `renewed` or `lost` follows, unless the lease is released before.
   */
  readonly jeopardy: OfLease<'jeopardy'> & {
    readonly remainingMs: number
    /** The error of the last renewal. `undefined` if none has failed and one is overdue. */
    readonly error: unknown
  }
  /** The lease is over although its holder did not release it. Others may hold the key. */
  readonly lost: OfLease<'lost'> & {
    /** Never `released`, which has an event of its own. */
    readonly reason: Exclude<LossReason, 'released'>
    readonly heldMs: number
    /** The `LeaseLostError` that its holder gets. */
    readonly error: Error
  }
  /** The holder is done, and the store was asked to release the key. */
  readonly released: OfLease<'released'> & { readonly heldMs: number }
  /** The holder let go of the lease without releasing the key. This process no longer renews it. */
  readonly detached: OfLease<'detached'> & { readonly heldMs: number }
  /** Somebody evicted a ticket of this process. The `lost` or `withdrawn` that it causes follows. */
  readonly evicted: OfTicket<'evicted'> & {
    readonly was: 'holder' | 'waiter'
    /** The reason that the evictor gave. */
    readonly reason: string | undefined
  }
  /** A request to the store failed. The locks go on as far as they can. */
  readonly 'store-error': Told<'store-error'> & {
    readonly verb: StoreVerb
    /** `refused`: the request certainly had no effect. `ambiguous`: it may or may not have had one. */
    readonly outcome: 'ambiguous' | 'refused'
    /** `undefined` if no answer came in time. The answer may still come. */
    readonly error: unknown
    /** `undefined` if the request is about no key, or about several: renewals are sent in batches. */
    readonly key: string | undefined
    readonly id: string | undefined
  }
  /** A leader of an election begins its term. The events of its lease are told as well. */
  readonly elected: OfLease<'elected'>
  /** The work of a leader has settled, and it leads no more. If its lease was lost, that may be long after the `lost`. */
  readonly resigned: OfLease<'resigned'> & {
    readonly ledMs: number
    readonly reason: 'done' | 'failed' | 'step-down' | 'lost'
  }
  /** The callback of `withLock` and the like is about to run. A listener can wrap something around it. */
  readonly working: OfLease<'working'> & {
    /**
     * Has `wrap` called in place of the callback. `wrap` calls `run` synchronously; `run` runs the callback and never
     * throws. For async context: call `run` inside of `AsyncLocalStorage.run` or OpenTelemetry's `context.with`.
     */
    readonly around: (wrap: (run: () => void) => void) => void
  }
}

/** The name of an event, as `locks.on` takes it. */
export type LockEventName = keyof LockEvents
/** Why a request ended early. `full`: `maxWaiting` calls wait already. `store`: the store refused it, or did not answer. */
export type Withdrawal = 'aborted' | 'evicted' | 'deadlock' | 'full' | 'closed' | 'store'
/** A kind of request to a store. */
export type StoreVerb = 'acquire' | 'renew' | 'release' | 'listen' | 'inspect' | 'evict'

/**
 * The fields of every event.
 *
 * @inline
 */
interface Told<Name extends string> {
  readonly event: Name
  /** The kind of store: `memory`, `redis`, … */
  readonly store: string
  /** Milliseconds since 1970, by the clock of this process. */
  readonly at: number
}

/** @inline */
type OfTicket<Name extends string> = Told<Name> & {
  readonly key: string
  /** The ticket's id: the same for all events of one request and of its lease. Unique for ever. */
  readonly id: string
  /** How much of the key it takes, and (`limit`) the largest sum it tolerates: 1 and 1 for a mutex. */
  readonly units: number
  readonly limit: number
  /** Host, process id and label. For people. */
  readonly owner: Owner
}

/** @inline */
type OfLease<Name extends string> = OfTicket<Name> & { readonly fence: bigint }
