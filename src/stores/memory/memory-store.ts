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
import { acquire, evict, isIdle, release, renew, type StoreTime, type VerbResult } from '../../law/room.ts'
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
  readonly #rooms: MemoryRooms
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #now: (atMs?: number) => StoreTime
  /** The largest fence of all rooms that were cleared. A new room starts above it. */
  #fenceFloor = 0
  /** The room that was left last. */
  #left: KeptRoom | undefined

  constructor({ now, reaches }: MemoryStoreOptions) {
    this.#rooms = new MemoryRooms(reaches ?? (() => this.#listeners.size > 0))
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
      const room = this.#find(ticket.key)
      return room === undefined ? GONE : this.#settled(renew(room, ticket, time))
    })
  }

  release(request: ReleaseRequest, atMs?: number): ReleaseAnswer {
    const time = this.#now(atMs)
    // A tombstone needs a room, even if there is none yet.
    const room = request.cancel ? this.#enter(request.key, time) : this.#find(request.key)
    if (room === undefined) return { was: 'unknown' }
    const outcome = release(room, request, time)
    this.#leave(room, time)
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
    const keys = this.#keys(request)
    const page = keys.slice(0, request.count)
    const rooms = page
      .map((key) => this.#rooms.get(key))
      .filter((room) => room !== undefined)
      .map((room) => view(room, room.key, time))
      .filter((room) => room.holders.length > 0 || room.queue.length > 0 || room.closedMs > 0)
    return { rooms, next: keys.length > page.length ? page.at(-1) : undefined }
  }

  evict(request: EvictRequest): readonly string[] {
    const room = this.#find(request.key)
    return room === undefined ? [] : this.#settled(evict(room, request, this.#now()))
  }

  /** The store opens nothing, so it has nothing to close. Another `createLocks` may go on with it. */
  async close(): Promise<void> {}

  #keys({ prefix, exact, cursor }: InspectRequest): string[] {
    if (exact === true) return this.#rooms.get(prefix) === undefined ? [] : [prefix]
    return [...this.#rooms.keys()]
      .filter((key) => key.startsWith(prefix) && (cursor === undefined || key > cursor))
      .sort(byCodeUnits)
  }

  #find(key: string): KeptRoom | undefined {
    return this.#left?.key === key ? this.#left : this.#rooms.get(key)
  }

  #enter(key: string, time: StoreTime): KeptRoom {
    const present = this.#find(key)
    if (present !== undefined) return present
    this.#clearOldest(time)
    return this.#rooms.open(key, this.#fenceFloor)
  }

  /** Keeps the room that was left last until another room is left: the same key again and again has to be fast. */
  #leave(room: KeptRoom, time: StoreTime): void {
    const before = this.#left
    if (before === room) return
    this.#left = room
    if (before !== undefined) this.#clear(before, time)
  }

  #clear(room: KeptRoom, time: StoreTime): void {
    if (!isIdle(room, time)) return
    this.#fenceFloor = Math.max(this.#fenceFloor, room.lastFence)
    if (this.#left === room) this.#left = undefined
    this.#rooms.close(room)
  }

  /**
   * Finds rooms whose holder never came back. Each new room pays for a look at the two that were not looked at for the
   * longest time. So there are never many more rooms than are in use, without a sweep.
   */
  #clearOldest(time: StoreTime): void {
    if (this.#rooms.size < 2) return
    for (let looks = 0; looks < 2; looks += 1) {
      const room = this.#rooms.nextToLookAt()
      if (room !== undefined) this.#clear(room, time)
    }
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
