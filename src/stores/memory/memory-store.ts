import {
  type AcquireAnswer,
  type EvictRequest,
  GONE,
  type InspectRequest,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomPage,
  type Store,
  type Ticket,
  type Wake,
} from '../../contract/store.ts'
import {
  acquire,
  emptyLone,
  evict,
  fillLone,
  isIdle,
  isLone,
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
  /** Where the store's time comes from, for tests. Default: the monotonic clock of the process, which counts from 1970. */
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
  readonly #rooms: MemoryRooms = new MemoryRooms()
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #now: (atMs?: number) => StoreTime
  readonly #reaches: Room['reaches']
  /** The largest fence of all rooms that were cleared. A new room starts above it. */
  #fenceFloor = 0
  /** The key that was asked about last. Its room may be the desk. */
  #last: KeptRoom | undefined
  /** The law works on rooms. A lone holder gets this one as long as its key is the last that was asked about. */
  #desk: Room

  constructor({ now, reaches }: MemoryStoreOptions) {
    this.#reaches = reaches ?? (() => this.#listeners.size > 0)
    this.#desk = openRoom(0, this.#reaches)
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
      const room = this.#find(ticket.key, time)
      return room === undefined ? GONE : this.#settled(renew(room, ticket, time))
    })
  }

  release(request: ReleaseRequest, atMs?: number): ReleaseAnswer {
    const time = this.#now(atMs)
    // A tombstone needs a room, even if there is none yet.
    const room = request.cancel ? this.#enter(request.key, time) : this.#find(request.key, time)
    return room === undefined ? { was: 'unknown' } : this.#settled(release(room, request, time))
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
      .map((kept) => view(kept.room ?? this.#roomOf(kept), kept.key, time))
      .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
    return { rooms, next: keys.length > page.length ? page.at(-1) : undefined }
  }

  evict(request: EvictRequest): readonly string[] {
    const time = this.#now()
    const room = this.#find(request.key, time)
    return room === undefined ? [] : this.#settled(evict(room, request, time))
  }

  /** The store opens nothing, so it has nothing to close. Another `createLocks` may go on with it. */
  async close(): Promise<void> {}

  #keys({ prefix, exact, cursor }: InspectRequest): string[] {
    if (exact === true) return this.#rooms.get(prefix) === undefined ? [] : [prefix]
    return [...this.#rooms.keys()]
      .filter((key) => key.startsWith(prefix) && (cursor === undefined || key > cursor))
      .sort(byCodeUnits)
  }

  #find(key: string, time: StoreTime): Room | undefined {
    const kept = this.#last?.key === key ? this.#last : this.#rooms.get(key)
    return kept === undefined ? undefined : this.#visit(kept, time)
  }

  #enter(key: string, time: StoreTime): Room {
    const present = this.#find(key, time)
    if (present !== undefined) return present
    this.#clearOldest(time)
    return this.#visit(this.#rooms.open(key, this.#fenceFloor), time)
  }

  /** The room of a key for the law. It stays with the key until another key is visited. */
  #visit(kept: KeptRoom, time: StoreTime): Room {
    if (this.#last !== kept) {
      if (this.#last !== undefined) this.#leave(this.#last, time)
      this.#last = kept
    }
    if (kept.room === undefined) {
      fillLone(this.#desk, kept)
      kept.holder = undefined
      kept.room = this.#desk
    }
    return kept.room
  }

  #leave(kept: KeptRoom, time: StoreTime): void {
    this.#last = undefined
    const { room } = kept
    if (room === undefined) return
    if (this.#clear(kept, room, time) || isLone(room)) {
      kept.lastFence = room.lastFence
      kept.holder = emptyLone(room)
      kept.room = undefined
    } else if (room === this.#desk) this.#desk = openRoom(0, this.#reaches)
  }

  #clear(kept: KeptRoom, room: Room, time: StoreTime): boolean {
    if (!isIdle(room, time)) return false
    this.#fenceFloor = Math.max(this.#fenceFloor, room.lastFence)
    this.#rooms.close(kept)
    return true
  }

  /**
   * Finds rooms whose holder never came back. Each new room pays for a look at the two that were not looked at for the
   * longest time. So there are never many more rooms than are in use, without a sweep.
   */
  #clearOldest(time: StoreTime): void {
    if (this.#rooms.size < 2) return
    for (let looks = 0; looks < 2; looks += 1) {
      const kept = this.#rooms.nextToLookAt()
      if (kept === undefined || kept === this.#last) continue
      if (kept.room !== undefined) this.#clear(kept, kept.room, time)
      else if (kept.holder === undefined || kept.holder.expiresAt <= time.ms) this.#visit(kept, time)
    }
  }

  /** A room for a lone holder, to look at. */
  #roomOf(kept: KeptRoom): Room {
    const room = openRoom(0, this.#reaches)
    fillLone(room, kept)
    return room
  }

  #settled<A>(outcome: VerbResult<A>): A {
    for (const wake of outcome.wakes) for (const onWake of this.#listeners) onWake(wake)
    return outcome.answer
  }
}

const originMs = Date.now() - performance.now()

/** Monotonic. It stands still while the machine sleeps, which is right here: the holders sleep, too. */
function processTime(atMs: number = performance.now()): StoreTime {
  const ms = originMs + atMs
  return { ms, us: Math.floor(ms * 1000) }
}

function byCodeUnits(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
