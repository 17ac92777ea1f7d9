import type { Clock } from './clock.ts'

/**
 * What the engine and a store agree on. Small on purpose: a store keeps rooms, decides expiry by its own clock, and
 * follows the law (`law/`). Everything else – deadlines, renewal, waiting, giving up – is built once, in the engine.
 *
 * Ten promises, each one a test of the conformance suite (`holdfast/testing`):
 *
 *  1. Resolve is the truth; a throw means *unknown*: it may or may not have happened. Contention and loss are values.
 *  2. Repeatable: every call may be sent again with the same ticket, so a lost reply costs nothing.
 *  3. Only the store's clock decides expiry. No store reads the client's clock; in process they are the same one.
 *     On etcd the process of a ticket ends it by its own timer, counted from before its request; etcd ends the tickets of a process
 *     that is gone.
 *  4. Fences rise for ever on a key: `max(last + 1, store time in µs)`. On etcd they count from the time of its first use.
 *  5. Order of arrival; a wide ticket is not starved. Waiters of dead processes are skipped within one acceptance term and a sixth of it,
 *     however many there are. If the message of promise 6 was the lease of a dead waiter, its ttl has to pass first. A store
 *     that knows that a waiter's process is gone may offer the key to the next waiter at once.
 *  6. The release (or expiry) step admits the head of the queue. The message to the head is its lease ({@link Granted}) if the
 *     store heard of the head within its acceptance term, and knows that its process takes the message. Then the head holds
 *     for its full ttl. Otherwise the store offers the key to the head for its acceptance term and wakes it, and the head
 *     confirms by asking again.
 *  7. Two calls per hand-over however long the queue is, and one if the message is the lease.
 *  8. Losing every message loses time, never a waiter: the next request of the waiter learns what the message said.
 *  9. Every call first clears what has expired and admits the next waiters, so no reaper has to stay alive.
 * 10. Idle keys leave nothing behind but what the fence rule needs.
 */
export interface Store {
  /** The kind of store, for messages and metrics: `memory`, `sqlite`, `redis`, … */
  readonly name: string

  /**
   * Set if the rooms live in this process and the store's time is the monotonic clock of this process. While the machine
   * sleeps, the clock stands still for the store and for the leases. So the engine reads this clock alone. Where it has read it
   * for a request, it hands the moment to the store as `atMs`. Without `atMs` the store reads the clock.
   */
  readonly inProcess?: true

  /**
   * Asks for the key, or asks again. A ticket that holds already gets its full `ttlMs` anew under the same fence; its expiry
   * never moves back, because a request with a shorter ttl may arrive late. A ticket that waits keeps its place. With
   * `patienceMs` 0 it is never queued. A ticket that was cancelled or evicted within the last {@link TOMBSTONE_MS} has no
   * effect and gets `gone`.
   */
  acquire(ticket: Ticket, atMs?: number): Answer<AcquireAnswer>

  /**
   * For stores in which one request can take several keys. If nobody holds or waits for any of the keys, it takes all of
   * them and answers with their fences in the same order. Otherwise it changes nothing and answers undefined, and the engine
   * asks for the keys one by one. Each ticket is of another key, and has `patienceMs` 0.
   */
  acquireAll?(tickets: readonly Ticket[]): Answer<readonly bigint[] | undefined>

  /**
   * Keeps tickets alive, one answer per ticket in the same order. A holder gets its full `ttlMs` from now; a ticket that was
   * only offered the key is confirmed. A waiter is remembered for another `patienceMs`. Never queues, never brings back what
   * has expired. If the store cannot learn what became of a ticket (one of several servers gave no answer), it leaves that
   * place empty, and the engine asks about the ticket again.
   */
  renew(tickets: readonly Ticket[], atMs?: number): Answer<readonly RenewAnswer[]>

  /** Forgets a ticket whether it holds, waits or is unknown, and admits the next waiters. Never rejects for contention. */
  release(request: ReleaseRequest, atMs?: number): Answer<ReleaseAnswer>

  /**
   * For stores in this process, beside {@link acquire}: takes the key for a ticket that the store never heard of, if nobody
   * holds it or waits for it, and neither a minimum hold nor a lock-delay is to be kept. Returns the fence, which is below 2^53.
   * Otherwise it changes nothing and returns undefined, and the engine calls `acquire`. It never throws.
   */
  take?(ticket: Ticket, atMs: number): number | undefined

  /**
   * The counterpart of {@link take}: releases a ticket without a look at the clock, if it holds alone, nobody waits, and neither a
   * minimum hold nor a lock-delay is to be kept. Returns whether it did. If not, nothing has changed, and the engine calls
   * {@link release}. However late it is: no other ticket has held the key since. If somebody waits in the {@link localQueue}, the
   * store looks at `clock` and admits the head of that queue.
   */
  giveBack?(ticket: Ticket, clock: Pick<Clock, 'monotonicMs'>): boolean

  /** For stores in this process, beside {@link take}: waiters that the store calls when it is their turn. */
  readonly localQueue?: LocalQueue

  /**
   * Starts delivering wakes to this process. Resolves once they flow, with a function that stops them, and rejects if they
   * cannot flow. If it returns the function without a promise, wakes flow already. A store without push leaves this method
   * out, and the engine asks at the times that the store names.
   */
  listen?(onWake: (wake: Wake) => void): Answer<() => void>

  /**
   * Lists rooms whose key starts with `prefix`, in a stable order, a page at a time. The room whose key is the prefix itself
   * comes first, so that one key is found at once however many there are. Changes nothing.
   */
  inspect(request: InspectRequest): Answer<RoomPage>

  /**
   * What {@link inspect} cannot know as it is used here, a sentence each, for people: the server is a replica, say. Empty, or
   * the method left out: nothing is missing.
   */
  caveats?(): Answer<readonly string[]>

  /**
   * Removes a ticket by force, wakes its process, and admits the next waiters. The tombstone of the ticket carries the
   * reason, so that the holder learns `evicted` and does not have to guess. Without an id, every ticket of the key is
   * removed. Resolves with the ids removed.
   */
  evict(request: EvictRequest): Answer<readonly string[]>

  /**
   * Ends what the store itself opened. From then on its calls reject with `store-refused`, unless it lives in this process.
   * Does not release tickets. Safe to call twice.
   */
  close(): Promise<void>
}

/**
 * The waiters of lone keys in this process. A ticket is never silent here, because the process that waits is the store. So it is
 * neither renewed nor sent messages, and the store calls it with its lease. All tickets that hold or wait are exclusive: the units
 * are the limit. None has a minimum hold or a lock-delay.
 *
 * A key to which anything else happens needs a room. Then the store puts all its waiters into the queue of the room, in the same order,
 * and calls {@link LocalWaiter.enrolled} of each.
 */
export interface LocalQueue {
  /**
   * Puts a waiter to the end of the queue. Returns how much time is left until the holder expires, after which {@link settle} has to
   * be called. Undefined: nothing has changed, because nobody holds the key, or because it needs a room. Then call `acquire`.
   */
  enter(waiter: LocalWaiter, atMs: number): number | undefined
  /** Takes a waiter out of the queue, if it is there. */
  leave(waiter: LocalWaiter): void
  /** Drops a holder that has expired, and admits the next waiter. Returns how much time is left until the holder expires. */
  settle(key: string, atMs: number): number
  /** Those who wait for the key, in order of arrival. */
  waiters(key: string): readonly LocalWaiter[]
}

/** A waiter that the store calls when it is its turn. No call of it may call the store. */
export interface LocalWaiter {
  /** What it waits for. */
  readonly ticket: Ticket
  /** Set by the store: how many waited when it came. */
  ahead: number
  /** Set by the store: when it came, in milliseconds on the store's clock. */
  since: number
  /** For the store alone: its neighbour towards the head of the queue. */
  before: LocalWaiter | undefined
  /** For the store alone: its neighbour towards the end of the queue. */
  behind: LocalWaiter | undefined
  /** The ticket holds, for its full ttl from `atMs`. It has left the queue. */
  granted(fence: number, atMs: number): void
  /** The ticket waits in a room now. It has to be renewed like every other, and the store sends it messages. */
  enrolled(): void
}

/** A store may answer without a promise: the in-process path needs none. */
export type Answer<T> = T | Promise<T>

/** One attempt to hold one key. All durations are measured by the store's clock. */
export interface Ticket {
  /** The key to hold. */
  readonly key: string
  /** Random, made by the client before its first request. Unique for ever. */
  readonly id: string
  /** How much of the key it takes; see the law. */
  readonly units: number
  /** The largest sum of units it tolerates, itself included. {@link UNLIMITED} for a reader. */
  readonly limit: number
  /** How long the store keeps it as a holder without a renewal. */
  readonly ttlMs: number
  /** How long an admitted waiter has to confirm, before the next one is admitted in its place. At most `ttlMs`. */
  readonly acceptMs: number
  /**
   * How long the store remembers it as a waiter without a renewal. 0: never queue. It loses its place sooner if an offer to
   * the ticket right in front of it lapses, and it was not renewed for an acceptance term itself.
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

/** What the store says to a request for a key. */
export type AcquireAnswer =
  /** It holds, for `ttlMs` from the moment the store acted. */
  | { readonly tag: 'held'; readonly fence: bigint }
  /**
   * It waits behind `ahead` others. It has to be renewed after `askAgainMs` at the latest, or when woken: to stay remembered,
   * and because the wake of an offer may have been lost. `storeMs`: the store's time when it answered, if its messages may be
   * leases; see {@link Granted}.
   */
  | {
      readonly tag: 'queued'
      readonly ahead: number
      readonly askAgainMs: number
      readonly storeMs?: number
    }
  /** The key is taken, and the ticket does not wait. `retryMs`: when the earliest holder expires, if nothing happens. */
  | { readonly tag: 'busy'; readonly retryMs: number }
  /** Cancelled or evicted before. `reason` is the one given to `evict`. */
  | Gone

/** What the store says of one ticket that was to be renewed. */
export type RenewAnswer =
  | { readonly tag: 'held'; readonly fence: bigint }
  | { readonly tag: 'queued'; readonly askAgainMs: number; readonly storeMs?: number }
  /** Certainly not held and not queued (any more). `evicted` only when somebody removed it on purpose. */
  | Gone

/** The store knows no such ticket: it neither holds nor waits. */
export interface Gone {
  /** Tells this answer from the others. */
  readonly tag: 'gone'
  /** Whether somebody removed the ticket on purpose. `false`: it expired, was released, or never came. */
  readonly evicted: boolean
  /** The reason that was given to `evict`. */
  readonly reason?: string
}

/** Neither held nor queued, and not evicted. */
export const GONE: Gone = { tag: 'gone', evicted: false }

/** Which ticket to forget. */
export interface ReleaseRequest {
  /** The key of the ticket. */
  readonly key: string
  /** The id of the ticket. */
  readonly id: string
  /**
   * Leaves a tombstone, because an acquire request of this id may still be on its way. Not needed if every request of the
   * ticket was answered; so a plain release leaves nothing behind.
   */
  readonly cancel: boolean
}

/** What became of a release. */
export interface ReleaseAnswer {
  /** What the ticket was until now. `unknown` covers: never arrived, expired, evicted, released before. */
  readonly was: 'held' | 'queued' | 'unknown'
}

/** A message of the store to a process that listens. */
export type Wake =
  /** Asking again is worth it for this ticket: it was offered the key, or evicted. */
  | { readonly tag: 'ticket'; readonly id: string }
  | Granted
  /** Asking again is worth it for every ticket, because messages may have been missed. */
  | { readonly tag: 'all' }

/**
 * The message is the lease: the ticket holds the key under this fence, for its full ttl from `storeMs`, by the store's time.
 *
 * The waiter has to find that moment on its own clocks, and must not take it for later than it was. Suppose that the waiter
 * sent its last question at a moment A of its clocks, and that the store answered `queued` at its own time T, which was not
 * before A. Then the grant was not before A + (`storeMs` − T), less 0.5 % of `storeMs` − T for clocks that run at different
 * rates. That moment is `askedAt` of the lease. It does not depend on how long the message took. The lease loses the time
 * that the question needed to reach the store, and these 0.5 %.
 *
 * That assumes of the store's clock what every lease assumes: that it does not jump. If it was set forward between T and
 * `storeMs`, the moment seems later than it was, but the waiter never takes it for later than the arrival of the message. If it
 * was set back, the lease is shorter. If `storeMs` is below T, the message is older than the answer: it is a hint only.
 *
 * That the message is about this wait is certain only if the ticket was asked for once. A ticket that was forgotten, and asked for
 * anew, may have been granted the key the first time. If the store's clock was set back since, that old message seems newer than T. So
 * for a ticket that was asked for more than once, every message is a hint.
 *
 * A lost message costs time: the next question finds out. If the message comes twice or late, it says nothing new, and a lease of
 * which nothing is left is not used. A waiter that has given up has sent its release. After an eviction, or when the store has lost
 * its data, the first renewal tells, as it tells every holder.
 */
export interface Granted {
  /** Tells this message from the others. */
  readonly tag: 'granted'
  /** The ticket that holds now. */
  readonly id: string
  /** Its fencing token. */
  readonly fence: bigint
  /** When the store granted the key, by the store's clock, in milliseconds. */
  readonly storeMs: number
}

/** Which page of rooms to list. */
export interface InspectRequest {
  /** What the keys of the rooms begin with. Empty: all rooms. */
  readonly prefix: string
  /**
   * Asks only for the room whose key is the prefix itself. The answer has this room, or none. It costs the same however many
   * other rooms there are, so it may be asked again and again. Default: false.
   */
  readonly exact?: boolean
  /** Where the page starts: the `next` of the page before, or `undefined` for the first. */
  readonly cursor: string | undefined
  /** How many rooms at most, 1 or more. A page may hold fewer although more follow. */
  readonly count: number
}

/** One page of rooms. */
export interface RoomPage {
  /** In the store's own order of keys. */
  readonly rooms: readonly RoomView[]
  /** Where the next page starts; `undefined` when this is the last. */
  readonly next: string | undefined
}

/** The holders and waiters of one key. */
export interface RoomView {
  /** The key. */
  readonly key: string
  /** All who hold the key now. */
  readonly holders: readonly HolderView[]
  /** In order of arrival. */
  readonly queue: readonly WaiterView[]
  /** How much longer a lock-delay keeps the key closed; 0 when it does not. */
  readonly closedMs: number
}

/** A ticket that holds a key. */
export interface HolderView {
  /** The ticket's id, as `evict` takes it. */
  readonly id: string
  /** How much of the key the ticket takes. */
  readonly units: number
  /** The largest sum of units that the ticket tolerates. */
  readonly limit: number
  /** Its fencing token. */
  readonly fence: bigint
  /** The process, as JSON. For people. */
  readonly owner: string
  /** How long the ticket has held the key. */
  readonly heldMs: number
  /** When the ticket expires, if it is not renewed. */
  readonly remainingMs: number
  /**
   * `offered`: admitted, but not confirmed yet. `leaving`: released before its minimum hold was over. Nobody has the lease any
   * more, and it counts as a holder until then.
   */
  readonly state: 'held' | 'offered' | 'leaving'
}

/** A ticket that waits for a key. */
export interface WaiterView {
  /** The ticket's id, as `evict` takes it. */
  readonly id: string
  /** How much of the key the ticket asks for. */
  readonly units: number
  /** The largest sum of units that the ticket tolerates. */
  readonly limit: number
  /** The process, as JSON. For people. */
  readonly owner: string
  /** How long the ticket has waited. */
  readonly waitedMs: number
}

/** Whom to remove by force. */
export interface EvictRequest {
  /** The key that is held or waited for. */
  readonly key: string
  /** The ticket to remove. `undefined`: every ticket of the key. */
  readonly id: string | undefined
  /** What the removed tickets are told. */
  readonly reason: string
  /** Leaves tickets that hold or were offered the key. So a request that arrives late takes the key from nobody. */
  readonly onlyIfWaiting?: boolean
}
