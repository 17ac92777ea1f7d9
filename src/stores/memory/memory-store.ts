import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../contract/store.ts'
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
  view,
} from '../../law/room.ts'

export interface MemoryStoreOptions {
  /** Where the store's time comes from, for tests. Default: the monotonic clock of the process, which counts from 1970. */
  readonly now?: () => StoreTime
  /** Whether a message to the process of this waiter is taken, for tests. Default: whenever somebody listens, since all are in this process. */
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
  readonly #rooms = new Map<string, Room>()
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #now: (atMs?: number) => StoreTime
  /** The largest fence of all rooms that were cleared. A new room starts above it. */
  #fenceFloor = 0
  readonly #spare: Room[] = []
  #left: string | undefined

  readonly #reaches: (id: string) => boolean

  constructor({ now, reaches }: MemoryStoreOptions) {
    this.#reaches = reaches ?? (() => this.#listeners.size > 0)
    this.#now = now ?? processTime
    if (now === undefined) this.inProcess = true
  }

  acquire(ticket: Ticket, atMs?: number): AcquireAnswer {
    const time = this.#now(atMs)
    return this.#settled(acquire(this.#enter(ticket.key, time), ticket, time))
  }

  renew(tickets: readonly Ticket[], atMs?: number): readonly RenewAnswer[] {
    const time = this.#now(atMs)
    return tickets.map((ticket) => {
      const room = this.#rooms.get(ticket.key)
      return room === undefined ? { tag: 'gone', evicted: false } : this.#settled(renew(room, ticket, time))
    })
  }

  release(request: ReleaseRequest, atMs?: number): ReleaseAnswer {
    const time = this.#now(atMs)
    // A tombstone needs a room, even if there is none yet.
    const room = request.cancel ? this.#enter(request.key, time) : this.#rooms.get(request.key)
    if (room === undefined) return { was: 'unknown' }
    const outcome = release(room, request, time)
    this.#leave(request.key, time)
    return this.#settled(outcome)
  }

  listen(onWake: (wake: Wake) => void): () => void {
    this.#listeners.add(onWake)
    return () => {
      this.#listeners.delete(onWake)
    }
  }

  inspect(request: InspectRequest): RoomPage {
    const time = this.#now()
    const keys = [...this.#rooms.keys()]
      .filter(
        (key) => key.startsWith(request.prefix) && (request.cursor === undefined || key > request.cursor),
      )
      .sort(byCodeUnits)
    const page = keys.slice(0, request.count)
    const rooms = page
      .map((key) => view(this.#rooms.get(key) ?? openRoom(0), key, time))
      .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
    return { rooms, next: keys.length > page.length ? page.at(-1) : undefined }
  }

  evict(request: EvictRequest): readonly string[] {
    const room = this.#rooms.get(request.key)
    return room === undefined ? [] : this.#settled(evict(room, request, this.#now()))
  }

  /** The store opens nothing, so it has nothing to close. Another `createLocks` may go on with it. */
  async close(): Promise<void> {}

  #enter(key: string, time: StoreTime): Room {
    const present = this.#rooms.get(key)
    if (present !== undefined) return present
    this.#clearOldest(time)
    const room = this.#spare.pop() ?? openRoom(0, this.#reaches)
    room.lastFence = this.#fenceFloor
    this.#rooms.set(key, room)
    return room
  }

  /** Keeps the room that was left last until another room is left: the same key again and again has to be fast. */
  #leave(key: string, time: StoreTime): void {
    const before = this.#left
    if (before === key) return
    this.#left = key
    const room = before === undefined ? undefined : this.#rooms.get(before)
    if (before !== undefined && room !== undefined) this.#clear(before, room, time)
  }

  #clear(key: string, room: Room, time: StoreTime): void {
    if (!isIdle(room, time)) return
    this.#fenceFloor = Math.max(this.#fenceFloor, room.lastFence)
    this.#rooms.delete(key)
    // An idle room is as good as a new one, except for its times and its fence. Making new rosters costs more than a lock.
    room.closedUntil = 0
    room.nextExpiry = Number.POSITIVE_INFINITY
    if (this.#spare.length < SPARE_ROOMS) this.#spare.push(room)
  }

  /**
   * Finds rooms whose holder never came back. Each new room pays for a look at the two oldest rooms. So the map never grows
   * beyond what is in use, without a sweep.
   */
  #clearOldest(time: StoreTime): void {
    if (this.#rooms.size < 2) return
    let looks = 0
    for (const [key, room] of this.#rooms) {
      this.#rooms.delete(key)
      this.#rooms.set(key, room)
      this.#clear(key, room, time)
      looks += 1
      if (looks === 2) return
    }
  }

  #settled<A>(outcome: VerbResult<A>): A {
    for (const wake of outcome.wakes) for (const onWake of this.#listeners) onWake(wake)
    return outcome.answer
  }
}

const SPARE_ROOMS = 16

const originMs = Date.now() - performance.now()

/** Monotonic. It stands still while the machine sleeps, which is right here: the holders sleep, too. */
function processTime(atMs: number = performance.now()): StoreTime {
  const ms = originMs + atMs
  return { ms, us: Math.floor(ms * 1000) }
}

function byCodeUnits(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
