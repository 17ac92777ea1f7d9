import type { Clock } from '../../../contract/clock.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import type { WatchedRooms } from '../rooms/watched-rooms.ts'
import { Alarm } from './alarm.ts'
import type { OwnTicket } from './own-ticket.ts'

export interface IdleRoomsOptions {
  readonly clock: Clock
  readonly rooms: WatchedRooms
  readonly tickets: ReadonlyMap<string, OwnTicket>
}

/**
 * Ends the watch of a room in which this process has no ticket any more. It waits a moment before, so that a process that comes
 * and goes often need not read the room each time.
 */
export class IdleRooms {
  readonly #options: IdleRoomsOptions
  readonly #alarm: Alarm
  readonly #since = new Map<EtcdRoom, number>()

  constructor(options: IdleRoomsOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** Call this when a room was opened, or a ticket has left one. */
  look(): void {
    this.#alarm.by(this.#options.clock.monotonicMs() + SOON_MS)
  }

  close(): void {
    this.#alarm.close()
  }

  #round(): void {
    const { clock, rooms, tickets } = this.#options
    const now = clock.monotonicMs()
    const used = new Set<string>()
    for (const { ticket } of tickets.values()) used.add(ticket.key)
    for (const room of this.#since.keys())
      if (used.has(room.key) || rooms.get(room.key) !== room) this.#since.delete(room)
    for (const room of rooms.values()) {
      if (used.has(room.key)) continue
      const since = this.#since.get(room) ?? now
      if (since + LINGER_MS <= now) {
        this.#since.delete(room)
        rooms.leave(room.key)
      } else {
        this.#since.set(room, since)
        this.#alarm.by(since + LINGER_MS)
      }
    }
  }
}

const SOON_MS = 250
const LINGER_MS = 1000
