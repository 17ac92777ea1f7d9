import type { LossReason } from '../errors.ts'

/**
 * What locks tell of themselves, by event. `locks.on(event, listener)` hears those of one `createLocks`, `lockEvents.on(…)`
 * those of the whole process, and so does a subscriber to the `node:diagnostics_channel` named `holdfast:` and the event.
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
  /** A key is asked for. The one event that is always told in the async context of the caller. */
  readonly requested: OfTicket<'requested'> & {
    /** How long the caller waits for it at most; 0 for a try. */
    readonly waitMs: number
    readonly ttlMs: number
  }
  /** The key is taken, and the request has its place in the queue. Once for each request. */
  readonly queued: OfTicket<'queued'> & { readonly ahead: number }
  /** Not free, for a caller that does not wait. */
  readonly busy: OfTicket<'busy'>
  readonly acquired: OfLease<'acquired'> & {
    readonly waitedMs: number
    /** Whether it stood in the queue. */
    readonly queued: boolean
    /**
     * The hand-over: from the wake that told this process of its turn until the store had confirmed it. `undefined` where no
     * wake came: the key was free, the store sends none, or it was lost and the turn was found by asking.
     */
    readonly wokenMs: number | undefined
  }
  /** Not free within `wait`. */
  readonly timeout: OfTicket<'timeout'> & {
    readonly waitedMs: number
    /** How many stood before it when the store last said so. */
    readonly ahead: number | undefined
  }
  /** Given up for another reason than that the key was not free in time. */
  readonly withdrawn: OfTicket<'withdrawn'> & {
    readonly waitedMs: number
    readonly reason: Withdrawal
    /** What the caller's promise rejects with. */
    readonly error: unknown
  }
  /** A lease that another process began is continued here. */
  readonly adopted: OfLease<'adopted'>
  readonly renewed: OfLease<'renewed'> & {
    readonly remainingMs: number
    /** How long the store took to answer. */
    readonly tookMs: number
  }
  /**
   * Less than half of the ttl is left, because a renewal failed or is overdue. Noticed when a renewal is made or fails, which is
   * every two seconds by then. A `renewed` or `lost` follows, if the lease is not released before.
   */
  readonly jeopardy: OfLease<'jeopardy'> & {
    readonly remainingMs: number
    /** What the last renewal failed with; `undefined` where none has failed, but is late. */
    readonly error: unknown
  }
  readonly lost: OfLease<'lost'> & {
    /** Never `released`, which has an event of its own. */
    readonly reason: Exclude<LossReason, 'released'>
    readonly heldMs: number
    /** The `LeaseLostError` that its holder gets. */
    readonly error: Error
  }
  /** Its holder is done with it, and the store was asked to give it to the next one. */
  readonly released: OfLease<'released'> & { readonly heldMs: number }
  /** Kept on purpose, and no longer looked after here. */
  readonly detached: OfLease<'detached'> & { readonly heldMs: number }
  /** Somebody took a ticket of this process away. Before the `lost` or `withdrawn` that it leads to. */
  readonly evicted: OfTicket<'evicted'> & {
    readonly was: 'holder' | 'waiter'
    /** What the evictor said. */
    readonly reason: string | undefined
  }
  /** One request to the store failed; the engine goes on as far as it can. */
  readonly 'store-error': Told<'store-error'> & {
    readonly verb: StoreVerb
    /** `refused`: certainly not done. `ambiguous`: it may or may not have been done. */
    readonly outcome: 'ambiguous' | 'refused'
    /** `undefined` where no answer came in time, which may still come. */
    readonly error: unknown
    /** `undefined` where the request is about no key, or about several: renewals go together. */
    readonly key: string | undefined
    readonly id: string | undefined
  }
  /** A leader of an election begins its term. Its lease is told of as any other, too. */
  readonly elected: OfLease<'elected'>
  /** The work of a leader has settled, and it leads no more. After a `lost` that is later than the end of its lease. */
  readonly resigned: OfLease<'resigned'> & {
    readonly ledMs: number
    readonly reason: 'done' | 'failed' | 'step-down' | 'lost'
  }
  /** The callback of `withLock` and the like is about to run. A chance to have it run inside of something. */
  readonly working: OfLease<'working'> & {
    /**
     * Has `wrap` called in place of the callback; it calls `run`, at once, which never throws. For async context: `run` inside of
     * `AsyncLocalStorage.run` or OpenTelemetry's `context.with`.
     */
    readonly around: (wrap: (run: () => void) => void) => void
  }
}

export type LockEventName = keyof LockEvents
/** What is wrong with a request that ends before its time. `store`: it refused, or did not answer. */
export type Withdrawal = 'aborted' | 'evicted' | 'deadlock' | 'closed' | 'store'
export type StoreVerb = 'acquire' | 'renew' | 'release' | 'listen' | 'inspect' | 'evict'

/** What every event says. */
interface Told<Name extends string> {
  readonly event: Name
  /** The kind of store: `memory`, `redis`, … */
  readonly store: string
  /** Milliseconds since 1970, by the clock of this process. */
  readonly at: number
}

type OfTicket<Name extends string> = Told<Name> & {
  readonly key: string
  /** The same for all events of one request and the lease that comes of it. Unique for ever. */
  readonly id: string
  /** With `limit` what it takes of the key: 1 of 1 for a mutex. */
  readonly units: number
  readonly limit: number
  /** Host, process id and label, as JSON. For people. */
  readonly owner: string
}

type OfLease<Name extends string> = OfTicket<Name> & { readonly fence: bigint }
