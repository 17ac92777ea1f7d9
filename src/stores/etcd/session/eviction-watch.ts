import type { Clock } from '../../../contract/clock.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import type { WatchedRooms } from '../rooms/watched-rooms.ts'
import { Alarm } from './alarm.ts'
import type { OwnTicket } from './own-ticket.ts'

export interface EvictionWatchOptions {
  readonly clock: Clock
  readonly rooms: Pick<WatchedRooms, 'get' | 'size' | 'read'>
  readonly tickets: ReadonlyMap<string, OwnTicket>
  /** Whether the engine listens to wakes. */
  isHeard(): boolean
  /** The room was read, and is watched from now on. */
  onWatched(room: EtcdRoom): void
}

/** Watches the rooms of holders, so that a holder hears of its eviction at once and not with the next renewal. */
export class EvictionWatch {
  readonly #options: EvictionWatchOptions
  readonly #alarm: Alarm
  /** By ticket: when its room is read next, if it could not be read. */
  readonly #again = new WeakMap<OwnTicket, number>()

  /** The keys whose rooms are being read, and are watched afterwards. */
  readonly #reading = new Set<string>()

  constructor(options: EvictionWatchOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** Call this when a ticket begins to hold. */
  look(own: OwnTicket): void {
    if (this.#options.isHeard()) this.#alarm.by(this.#dueAt(own))
  }

  /** Call this when the engine begins to listen to wakes. */
  lookAtAll(): void {
    for (const own of this.#options.tickets.values()) this.look(own)
  }

  close(): void {
    this.#alarm.close()
  }

  #round(): void {
    const { clock, tickets } = this.#options
    const now = clock.monotonicMs()
    for (const own of [...tickets.values()]) {
      if (this.#dueAt(own) <= now) {
        this.#again.set(own, now + AGAIN_MS)
        this.#read(own.ticket.key)
      }
      this.#alarm.by(this.#dueAt(own))
    }
  }

  #read(key: string): void {
    const { rooms, onWatched } = this.#options
    if (this.#reading.has(key) || rooms.size + this.#reading.size >= MOST_WATCHED) return
    this.#reading.add(key)
    void rooms
      .read(key)
      .then(onWatched, () => {})
      .finally(() => this.#reading.delete(key))
  }

  #dueAt(own: OwnTicket): number {
    const { rooms, isHeard } = this.#options
    const { state, ticket } = own
    const isUnwatched = state.tag === 'held' && isHeard() && rooms.size < MOST_WATCHED
    if (!isUnwatched || rooms.get(ticket.key) !== undefined) return Number.POSITIVE_INFINITY
    return this.#again.get(own) ?? state.since + FIRST_MS
  }
}

/** Most leases are released sooner than this, and need no watch. */
const FIRST_MS = 250
const AGAIN_MS = 5000
/** Other holders hear of an eviction with the next renewal: ten thousand watches would be too much for etcd. */
const MOST_WATCHED = 1000
