/**
 * What the engine and a store agree on. Small on purpose: a store keeps rooms, decides expiry by its own clock, and
 * follows the law (`law/`). Everything else – deadlines, renewal, waiting, giving up – is built once, in the engine.
 *
 * Ten promises, each one a test of the conformance suite (`holdfast/testing`):
 *
 *  1. Resolve is the truth; a throw means *unknown*: it may or may not have happened. Contention and loss are values.
 *  2. Repeatable: every call may be sent again with the same ticket, so a lost reply costs nothing.
 *  3. Only the store's clock decides expiry. No store reads the client's clock; in process they are the same one.
 *  4. Fences rise for ever on a key: `max(last + 1, store time in µs)`.
 *  5. Order of arrival; a wide ticket is not starved. Dead waiters are passed within one acceptance term, however many there
 *     are. A store that knows that nobody hears a waiter any more may offer the key to the next one at once.
 *  6. The release (or expiry) step admits the head of the queue for a short acceptance term and wakes it; the head
 *     confirms by asking again.
 *  7. Two calls per hand-over however long the queue is.
 *  8. A wake is a hint. Losing every one of them loses time, never a waiter.
 *  9. Every call first clears what has expired and admits who is next, so no reaper has to stay alive.
 * 10. Idle keys leave nothing behind, but what the fence rule needs.
 */
export interface Store {
  /** The kind of store, for messages and metrics: `memory`, `sqlite`, `redis`, … */
  readonly name: string

  /**
   * Its rooms live in this process and its time is the monotonic clock of this process, which stands still for both while
   * the machine sleeps. Whoever asks then reads that clock alone, and once for both: it is handed on as `atMs`.
   */
  readonly inProcess?: true

  /**
   * Asks for the key, or asks again: a ticket that already holds gets its full `ttlMs` anew under the same fence (its term
   * never gets shorter, as a request with a shorter ttl may arrive late), one that waits keeps its place. With
   * `patienceMs` 0 it is never queued. A ticket that was cancelled or evicted within the last {@link TOMBSTONE_MS} has no
   * effect and gets `gone`.
   */
  acquire(ticket: Ticket, atMs?: number): Answer<AcquireAnswer>

  /**
   * For stores in which one request can be about several keys: takes all of them (each ticket is of another key, and has
   * `patienceMs` 0), if nobody is there at any of them, and answers with their fences in the same order. Or else it
   * changes nothing and answers undefined, and they are asked for one by one.
   */
  acquireAll?(tickets: readonly Ticket[]): Answer<readonly bigint[] | undefined>

  /**
   * Keeps tickets alive, one answer per ticket in the same order: a holder gets its full `ttlMs` from now (one that was
   * only offered the key is confirmed by this), a waiter is remembered for another `patienceMs`. Never queues, never
   * brings back what has expired. Where it is not known what has become of some of them (one of several servers gave no
   * answer) their places are left empty, and they are asked about again.
   */
  renew(tickets: readonly Ticket[], atMs?: number): Answer<readonly RenewAnswer[]>

  /** Forgets a ticket whether it holds, waits or is unknown, and admits who is next. Never rejects for contention. */
  release(request: ReleaseRequest, atMs?: number): Answer<ReleaseAnswer>

  /**
   * Starts delivering wakes to this process; resolves once they flow, and rejects when they cannot. Returns how to
   * stop; returned at once it says that wakes flow already. A store without push leaves it out, and the engine asks at
   * the times the store names.
   */
  listen?(onWake: (wake: Wake) => void): Answer<() => void>

  /**
   * Lists rooms whose key starts with `prefix`, in a stable order, a page at a time; the room whose key is the prefix
   * itself comes first of all, so that one key is found at once however many there are. Changes nothing.
   */
  inspect(request: InspectRequest): Answer<RoomPage>

  /**
   * Removes a ticket by force, tells its process, and admits who is next. Its tombstone carries the reason, so that the
   * holder learns `evicted` and not a guess. Without an id every ticket of the key goes. Resolves with the ids removed.
   */
  evict(request: EvictRequest): Answer<readonly string[]>

  /**
   * Ends what the store itself opened; from then on its calls reject with `store-refused`, unless it lives in this process.
   * Does not release tickets. Safe to call twice.
   */
  close(): Promise<void>
}

/** A store may answer at once: the in-process path then needs no promise. */
export type Answer<T> = T | Promise<T>

/** One attempt to hold one key. All durations are measured by the store's clock. */
export interface Ticket {
  readonly key: string
  /** Random, made by the client before its first request. Unique for ever. */
  readonly id: string
  /** How much of the key it takes; see the law. */
  readonly units: number
  /** The largest sum of units it tolerates, itself included. {@link UNLIMITED} for a reader. */
  readonly limit: number
  /** How long the store keeps it as a holder without hearing of it. */
  readonly ttlMs: number
  /** How long an admitted waiter has to confirm, before the next one is admitted in its place. At most `ttlMs`. */
  readonly acceptMs: number
  /**
   * How long the store remembers it as a waiter without hearing of it. 0: never queue. It loses its place sooner if it is
   * silent for its acceptance term while an offer right in front of it lapses.
   */
  readonly patienceMs: number
  /** Once confirmed, the key stays taken for at least this long, even after a release. 0: no minimum. */
  readonly minHoldMs: number
  /** When it expires (or is evicted) without a release, nobody is admitted for this long. 0: no delay. */
  readonly lockDelayMs: number
  /** Human-readable facts about the process, as JSON. For people, never for decisions. */
  readonly owner: string
}

/** The limit of a ticket that tolerates any number of others: a read lock. */
export const UNLIMITED: number = Number.MAX_SAFE_INTEGER

/** How long a cancelled or evicted id is remembered, so that a late request of it has no effect. */
export const TOMBSTONE_MS = 60_000

export type AcquireAnswer =
  /** It holds, for `ttlMs` from the moment the store acted. */
  | { readonly tag: 'held'; readonly fence: bigint }
  /**
   * It waits behind `ahead` others. It has to ask again after `askAgainMs` at the latest, or when woken: by then it must
   * be remembered anew, and may have been offered the key by a wake that was lost.
   */
  | { readonly tag: 'queued'; readonly ahead: number; readonly askAgainMs: number }
  /** It may not hold now and did not want to wait. `retryMs`: when the earliest holder expires, if nothing happens. */
  | { readonly tag: 'busy'; readonly retryMs: number }
  /** Cancelled or evicted before. `reason` is what the evictor said. */
  | Gone

export type RenewAnswer =
  | { readonly tag: 'held'; readonly fence: bigint }
  | { readonly tag: 'queued'; readonly askAgainMs: number }
  /** Certainly not held and not queued (any more). `evicted` only when somebody removed it on purpose. */
  | Gone

export interface Gone {
  readonly tag: 'gone'
  readonly evicted: boolean
  readonly reason?: string
}

export interface ReleaseRequest {
  readonly key: string
  readonly id: string
  /**
   * Leave a tombstone: an acquire of this id may still be on its way. Not needed when every request of the ticket was
   * answered, which is why a plain release leaves nothing behind.
   */
  readonly cancel: boolean
}

export interface ReleaseAnswer {
  /** What the ticket was until now. `unknown` covers: never arrived, expired, evicted, released before. */
  readonly was: 'held' | 'queued' | 'unknown'
}

/** Asking again is worth it: for one ticket, or (without an id) for every ticket, because wakes may have been missed. */
export type Wake = { readonly tag: 'ticket'; readonly id: string } | { readonly tag: 'all' }

export interface InspectRequest {
  readonly prefix: string
  /** Where the page starts: the `next` of the page before, or `undefined` for the first. */
  readonly cursor: string | undefined
  /** How many rooms at most, 1 or more. A page may hold fewer although more follow. */
  readonly count: number
}

export interface RoomPage {
  readonly rooms: readonly RoomView[]
  /** Where the next page starts; `undefined` when this is the last. */
  readonly next: string | undefined
}

export interface RoomView {
  readonly key: string
  readonly holders: readonly HolderView[]
  /** In order of arrival. */
  readonly queue: readonly WaiterView[]
  /** How much longer a lock-delay keeps the key closed; 0 when it does not. */
  readonly closedMs: number
}

export interface HolderView {
  readonly id: string
  readonly units: number
  readonly limit: number
  readonly fence: bigint
  readonly owner: string
  readonly heldMs: number
  readonly remainingMs: number
  /**
   * `offered`: admitted, but it has not confirmed yet. `leaving`: released before its minimum hold was over; nobody has
   * it any more, and it still counts until then.
   */
  readonly state: 'held' | 'offered' | 'leaving'
}

export interface WaiterView {
  readonly id: string
  readonly units: number
  readonly limit: number
  readonly owner: string
  readonly waitedMs: number
}

export interface EvictRequest {
  readonly key: string
  readonly id: string | undefined
  readonly reason: string
}
