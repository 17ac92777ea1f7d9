// The same as the clock of the engine, also where a test has replaced the global.
import { performance } from 'node:perf_hooks'
import type { Clock } from '../../contract/clock.ts'
import {
  type AcquireAnswer,
  type EvictRequest,
  GONE,
  type InspectRequest,
  type LocalQueue,
  type LocalWaiter,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomPage,
  type Store,
  type Ticket,
  type Wake,
} from '../../contract/store.ts'
import {
  acquireLone,
  admitNext,
  emptyLone,
  enterLone,
  enterQueue,
  fillLone,
  isLone,
  isPlain,
  leaveQueue,
  queueOf,
  releaseLone,
  renewLone,
} from '../../law/lone.ts'
import {
  acquire,
  evict,
  isIdle,
  openRoom,
  type Room,
  release,
  renew,
  type StoreTime,
  type VerbResult,
} from '../../law/room.ts'
import { view } from '../../law/view.ts'
import { type KeptRoom, MemoryRooms } from './memory-rooms.ts'

/** Options for tests. A program needs none. */
export interface MemoryStoreOptions {
  /** Where the store's time comes from, for tests. Default: the monotonic clock of the process. */
  readonly now?: () => StoreTime
  /**
   * For tests: whether the process of this waiter takes a message. Default: yes, as soon as somebody listens, because all
   * listeners are in this process.
   */
  readonly reaches?: (id: string) => boolean
}

/**
 * A store inside this process: the law itself, which answers at once. For locks between the async tasks of one process, for tests,
 * and as the reference for every other store. It shares nothing with other processes, and nothing survives the process.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 *
 * const locks = createLocks(memoryStore())
 * await locks.withLock('report', async () => console.log('one at a time in this process'))
 * ```
 */
export function memoryStore(options: MemoryStoreOptions = {}): Store {
  return new MemoryStore(options)
}

class MemoryStore implements Store {
  readonly name = 'memory'
  readonly inProcess?: true
  readonly localQueue?: LocalQueue
  readonly #rooms: MemoryRooms = new MemoryRooms()
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #now: (atMs?: number) => StoreTime
  readonly #reaches: Room['reaches']
  /** The largest fence of all rooms that were cleared. A new room starts above it. */
  #fenceFloor = 0
  /** The key that was asked about last. */
  #last: KeptRoom | undefined
  /** An empty room, for the next key that needs one. A key is given it as long as it needs one, and returns it. */
  #spare: Room

  constructor({ now, reaches }: MemoryStoreOptions) {
    this.#reaches = reaches ?? (() => this.#listeners.size > 0)
    this.#spare = openRoom(0, this.#reaches)
    this.#now = now ?? processTime
    if (now === undefined) {
      this.inProcess = true
      this.localQueue = {
        enter: (waiter, atMs) => this.#enter(waiter, atMs),
        leave: (waiter) => this.#leaveQueue(waiter),
        settle: (key, atMs) => this.#settle(key, atMs),
        waiters: (key) => this.#waiters(key),
      }
    }
  }

  acquire(ticket: Ticket, atMs?: number): AcquireAnswer {
    const time = this.#now(atMs)
    const kept = this.#visit(ticket.key, time) ?? this.#open(ticket.key, time)
    const answer = this.#isLone(kept) ? acquireLone(kept, ticket, time) : undefined
    return answer ?? this.#settled(acquire(this.#roomOf(kept, time), ticket, time))
  }

  renew(tickets: readonly Ticket[], atMs?: number): readonly RenewAnswer[] {
    const time = this.#now(atMs)
    return tickets.map((ticket) => {
      const kept = this.#visit(ticket.key, time)
      if (kept === undefined) return GONE
      const answer = this.#isLone(kept) ? renewLone(kept, ticket, time) : undefined
      return answer ?? this.#settled(renew(this.#roomOf(kept, time), ticket, time))
    })
  }

  release(request: ReleaseRequest, atMs?: number): ReleaseAnswer {
    const time = this.#now(atMs)
    let kept = this.#visit(request.key, time)
    if (kept === undefined) {
      // A tombstone needs a room, even if there is none yet.
      if (!request.cancel) return { was: 'unknown' }
      kept = this.#open(request.key, time)
    }
    const answer = this.#isLone(kept) ? releaseLone(kept, request, time) : undefined
    if (answer === undefined) return this.#settled(release(this.#roomOf(kept, time), request, time))
    if (kept.queue !== undefined && kept.ticket === undefined) this.#admitNext(kept, time)
    return answer
  }

  take(ticket: Ticket, atMs: number): number | undefined {
    if (this.inProcess !== true) return undefined
    let kept = this.#last
    if (kept === undefined || kept.key !== ticket.key) {
      const time = this.#now(atMs)
      kept = this.#visit(ticket.key, time) ?? this.#open(ticket.key, time)
    }
    if (!this.#isLone(kept)) return undefined
    return enterLone(kept, ticket, Math.floor(atMs), fenceTime(atMs)) ? kept.fence : undefined
  }

  giveBack(ticket: Ticket, clock: Pick<Clock, 'monotonicMs'>): boolean {
    const last = this.#last
    const kept = last?.key === ticket.key ? last : this.#rooms.get(ticket.key)
    if (kept === undefined || kept.ticket !== ticket || !isPlain(ticket)) return false
    if (kept !== last) {
      if (last !== undefined) this.#leave(last)
      this.#last = kept
    }
    kept.ticket = undefined
    if (kept.queue !== undefined) this.#admitNext(kept, this.#now(clock.monotonicMs()))
    return true
  }

  listen(onWake: (wake: Wake) => void): () => void {
    this.#listeners.add(onWake)
    return () => {
      this.#listeners.delete(onWake)
    }
  }

  inspect(request: InspectRequest): RoomPage {
    const time = this.#now()
    const keys = this.#keys(request)
    const page = keys.slice(0, request.count)
    const rooms = page
      .map((key) => this.#rooms.get(key))
      .filter((kept) => kept !== undefined)
      .map((kept) => view(kept.room ?? this.#copyOf(kept, time), kept.key, time))
      .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
    return { rooms, next: keys.length > page.length ? page.at(-1) : undefined }
  }

  evict(request: EvictRequest): readonly string[] {
    const time = this.#now()
    const kept = this.#visit(request.key, time)
    return kept === undefined ? [] : this.#settled(evict(this.#roomOf(kept, time), request, time))
  }

  /** The store opens nothing, so it has nothing to close. Another `createLocks` may go on with it. */
  async close(): Promise<void> {}

  #enter(waiter: LocalWaiter, atMs: number): number | undefined {
    const last = this.#last
    const { key } = waiter.ticket
    const kept = last?.key === key ? last : this.#visit(key, this.#now(atMs))
    if (kept === undefined || !this.#isLone(kept)) return undefined
    const ms = Math.floor(atMs)
    return enterQueue(kept, waiter, ms) ? kept.expiresAt - ms : undefined
  }

  #leaveQueue(waiter: LocalWaiter): void {
    const kept = this.#rooms.get(waiter.ticket.key)
    if (kept !== undefined) leaveQueue(kept, waiter)
  }

  #settle(key: string, atMs: number): number {
    const time = this.#now(atMs)
    const kept = this.#rooms.get(key)
    if (kept?.queue === undefined) return Number.POSITIVE_INFINITY
    if (kept.expiresAt <= time.ms) this.#admitNext(kept, time)
    return kept.expiresAt - time.ms
  }

  #waiters(key: string): readonly LocalWaiter[] {
    const kept = this.#rooms.get(key)
    return kept === undefined ? [] : queueOf(kept)
  }

  #admitNext(kept: KeptRoom, { ms, us }: StoreTime): void {
    admitNext(kept, ms, us)?.granted(kept.fence, ms)
  }

  #keys({ prefix, exact, cursor }: InspectRequest): string[] {
    if (exact === true) return this.#rooms.get(prefix) === undefined ? [] : [prefix]
    return [...this.#rooms.keys()]
      .filter((key) => key.startsWith(prefix) && (cursor === undefined || key > cursor))
      .sort(byCodeUnits)
  }

  /** What is kept of the key that a call is about. The key before it is left. */
  #visit(key: string, time: StoreTime): KeptRoom | undefined {
    const last = this.#last
    if (last !== undefined) {
      if (last.key === key) return last
      this.#leave(last, time)
    }
    this.#last = this.#rooms.get(key)
    return this.#last
  }

  #open(key: string, time: StoreTime): KeptRoom {
    this.#clearOldest(time)
    this.#last = this.#rooms.open(key, this.#fenceFloor)
    return this.#last
  }

  /** The key stays the last one until another one is visited, because the same key may be asked about again. */
  #leave(kept: KeptRoom, time?: StoreTime): void {
    if (kept.room === undefined) {
      if (kept.ticket === undefined) this.#close(kept, kept.fence)
    } else if (isIdle(kept.room, time ?? this.#now())) this.#close(kept, kept.room.lastFence)
    else this.#isLone(kept)
  }

  #close(kept: KeptRoom, lastFence: number): void {
    this.#fenceFloor = Math.max(this.#fenceFloor, lastFence)
    this.#rooms.close(kept)
  }

  /** Whether the key needs no room. A room that it does not need any more is taken away. */
  #isLone(kept: KeptRoom): boolean {
    const { room } = kept
    if (room === undefined) return true
    if (!isLone(room)) return false
    emptyLone(room, kept)
    kept.room = undefined
    this.#spare = room
    return true
  }

  /** The room of a key, for the law. */
  #roomOf(kept: KeptRoom, { ms }: StoreTime): Room {
    if (kept.room !== undefined) return kept.room
    const room = this.#spare
    this.#spare = openRoom(0, this.#reaches)
    const waiters = queueOf(kept)
    fillLone(room, kept, ms)
    kept.room = room
    kept.ticket = undefined
    kept.queue = undefined
    for (const waiter of waiters) {
      waiter.before = undefined
      waiter.behind = undefined
      waiter.enrolled()
    }
    return room
  }

  /**
   * Finds keys whose holder never came back. Each new key pays for a look at the two that were not looked at for the
   * longest time. So there are never many more than are in use, without a sweep.
   */
  #clearOldest(time: StoreTime): void {
    if (this.#rooms.size < 2) return
    for (let looks = 0; looks < 2; looks += 1) {
      const kept = this.#rooms.nextToLookAt()
      if (kept === undefined) return
      const { room, ticket } = kept
      if (room !== undefined) {
        if (isIdle(room, time)) this.#close(kept, room.lastFence)
      } else if (kept.queue === undefined && (ticket === undefined || kept.expiresAt <= time.ms)) {
        if (ticket === undefined || isPlain(ticket)) this.#close(kept, kept.fence)
        else if (isIdle(this.#roomOf(kept, time), time)) this.#close(kept, kept.fence)
      }
    }
  }

  /** A room to look at. */
  #copyOf(kept: KeptRoom, { ms }: StoreTime): Room {
    const room = openRoom(0, this.#reaches)
    fillLone(room, kept, ms)
    return room
  }

  #settled<A>(outcome: VerbResult<A>): A {
    for (const wake of outcome.wakes) for (const onWake of this.#listeners) onWake(wake)
    return outcome.answer
  }
}

const originMs = Date.now() - performance.now()

/**
 * Monotonic, in whole milliseconds from the start of the process: V8 keeps whole numbers below 2^31 inside the room, and makes an
 * object for every other number. It stands still while the machine sleeps, which is right here: the holders sleep, too.
 */
function processTime(atMs: number = performance.now()): StoreTime {
  return { ms: Math.floor(atMs), us: fenceTime(atMs) }
}

/** In µs since 1970. */
function fenceTime(atMs: number): number {
  return Math.floor((originMs + atMs) * 1000)
}

function byCodeUnits(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
