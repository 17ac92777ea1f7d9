import { type Backoff, backoffMs } from '../../../base/backoff.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { type Operation, TXN } from '../grpc/messages.ts'
import type { Room } from '../rooms/room.ts'
import type { RoomNames } from '../rooms/room-names.ts'
import type { Rooms } from '../rooms/rooms.ts'
import { closingValue, type Entry, entryOf, kept, ticketValue } from '../rooms/ticket-value.ts'
import type { Leases } from './leases.ts'
import type { OwnKeys } from './own-keys.ts'
import type { OwnTicket } from './own-ticket.ts'

export interface WardensOptions {
  readonly cluster: Cluster
  readonly names: RoomNames
  readonly keys: OwnKeys
  readonly leases: Leases
  readonly rooms: Rooms
  readonly own: ReadonlyMap<string, OwnTicket>
  /** Whether anybody listens to wakes. */
  isHeard(): boolean
  onSettle(room: Room): void
  /** The room is looked at from now on. */
  onSeen(room: Room): void
  /** Its key is no longer ours; `isDeleted`: and it is no longer there. */
  onEnded(own: OwnTicket, outcome: { readonly isDeleted: boolean }): void
}

/**
 * What etcd cannot do by itself, for the tickets of this process: to end a single one at its time – its ttl, its acceptance
 * term, its minimum hold, a lock-delay – while the lease that it shares with others lives on. A process that cannot do this
 * any more, because it has died, hangs or is cut off, loses its lease and with it all of them.
 */
export class Wardens {
  readonly #options: WardensOptions
  readonly #closings = new Map<string, number>()
  readonly #idle = new Map<Room, number>()
  #timer: NodeJS.Timeout | undefined
  #wakesAt = Number.POSITIVE_INFINITY
  #isClosed = false

  constructor(options: WardensOptions) {
    this.#options = options
  }

  /** Looks after a ticket whose times have changed, or after who listens and which rooms are in use. */
  look(own?: OwnTicket): void {
    this.#wakeBy(own === undefined ? performance.now() + SOON_MS : this.#dueAt(own))
  }

  /** Ends a ticket of ours, if it is still as we know it. */
  end(own: OwnTicket): Promise<void> {
    if (own.ending === undefined) {
      if (own.state === 'offered') this.#endSilent(own)
      own.ending = this.#end(own)
    }
    return own.ending
  }

  /**
   * An offer that lapses also lapses for those of ours right behind it that have been silent for as long as an offer to them
   * would stand. Those of another process are the matter of that process.
   */
  #endSilent({ ticket: { key }, createRevision }: OwnTicket): void {
    const now = performance.now()
    for (const entry of this.#options.rooms.get(key)?.tickets.values() ?? []) {
      if (entry.createRevision <= createRevision) continue
      const own = this.#options.own.get(entry.id)
      const isWaiting = own?.state === 'waiting' && own.createRevision === entry.createRevision
      if (!isWaiting || own.heardAt + own.ticket.acceptMs > now) return
      void this.end(own)
    }
  }

  /** Set while tickets of ours at the front of a room are being ended; ends those whose time is over. */
  clearing(room: Room): Promise<void> | undefined {
    const { holders, head } = room.divide()
    const now = performance.now()
    const endings: Promise<void>[] = []
    for (const entry of head === undefined ? holders : [...holders, head]) {
      const own = this.#options.own.get(entry.id)
      if (own === undefined || own.createRevision !== entry.createRevision) continue
      if (own.ending === undefined && own.state !== 'waiting' && own.until <= now) void this.end(own)
      if (own.ending !== undefined) endings.push(own.ending)
    }
    return endings.length === 0 ? undefined : Promise.all(endings).then(() => {})
  }

  /** Released before its minimum hold was over. False when it is no longer ours. */
  async leave(own: OwnTicket): Promise<boolean> {
    const reply = await this.#options.keys.change(own, () => {
      const value = ticketValue(kept(own.ticket, { at: own.at, state: 'leaving', pinned: own.pinned }))
      return { apply: [{ tag: 'put', key: own.name, value, lease: own.lease.id }] }
    })
    if (reply === undefined) return false
    own.modRevision = reply.revision
    own.state = 'leaving'
    own.until = own.holdUntil
    this.look(own)
    return true
  }

  /** A lock-delay that this process has begun, and ends. */
  closing(name: string, durationMs: number): void {
    const until = performance.now() + durationMs
    this.#closings.set(name, until)
    this.#wakeBy(until)
  }

  /** How much longer a lock-delay lasts; at most, where another process has begun it. */
  closesFor({ name, value }: Entry): number {
    const until = this.#closings.get(name)
    if (until !== undefined) return Math.max(0, until - performance.now())
    return value.state === 'closing' ? value.ms : 0
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }

  async #end(own: OwnTicket): Promise<void> {
    const { key, id, lockDelayMs } = own.ticket
    const isDelayed = own.state === 'held' && lockDelayMs > 0
    const closesAt = own.until + lockDelayMs
    own.state = 'ended'
    let isDeleted = false
    // However long it takes: the lease is kept alive for others, and only etcd can say that it has dropped it all the same.
    await this.#insist(
      () => own.lease.isLost,
      async () => {
        const operations: Operation[] = [{ tag: 'delete', key: own.name }]
        const leftMs = closesAt - performance.now()
        const name = this.#options.names.closing(key, id)
        if (isDelayed && leftMs > 0) {
          const lease = await this.#options.leases.once(leftMs, { mayBeLonger: true })
          operations.push({ tag: 'put', key: name, value: closingValue(leftMs), lease: lease.id })
          this.closing(name, leftMs)
        }
        isDeleted = (await this.#options.keys.change(own, () => ({ apply: operations }))) !== undefined
      },
    )
    this.#options.onEnded(own, { isDeleted })
  }

  async #insist(isOver: () => boolean, work: () => Promise<void>): Promise<void> {
    for (let tries = 1; !this.#isClosed && !isOver(); tries += 1) {
      try {
        return await work()
      } catch {
        const pauseMs = backoffMs(INSISTING, tries)
        await new Promise((resolve) => setTimeout(resolve, pauseMs).unref())
      }
    }
  }

  #wakeBy(at: number): void {
    if (at >= this.#wakesAt || this.#isClosed) return
    clearTimeout(this.#timer)
    this.#wakesAt = at
    this.#timer = setTimeout(() => this.#round(), Math.max(1, Math.ceil(at - performance.now())))
    this.#timer.unref()
  }

  #round(): void {
    this.#wakesAt = Number.POSITIVE_INFINITY
    const now = performance.now()
    let next = Number.POSITIVE_INFINITY
    const keys = new Set<string>()
    for (const own of [...this.#options.own.values()]) {
      keys.add(own.ticket.key)
      const dueAt = this.#dueAt(own)
      if (dueAt <= now) this.#due(own, now)
      next = Math.min(next, this.#dueAt(own))
    }
    next = Math.min(next, this.#endClosings(now), this.#leaveRooms(keys, now))
    if (next !== Number.POSITIVE_INFINITY) this.#wakeBy(next)
  }

  #dueAt(own: OwnTicket): number {
    switch (own.state) {
      case 'waiting':
        return own.rememberedUntil + LATE_MS
      case 'offered':
      case 'leaving':
        return own.until
      case 'held': {
        const attendAt = this.#isUnattended(own) ? own.attendAt : Number.POSITIVE_INFINITY
        return Math.min(own.until, attendAt, isToUnpin(own) ? own.holdUntil : Number.POSITIVE_INFINITY)
      }
      case 'ended':
        return Number.POSITIVE_INFINITY
      default:
        return own.state satisfies never
    }
  }

  #due(own: OwnTicket, now: number): void {
    const isOver = own.state === 'waiting' ? own.rememberedUntil + LATE_MS <= now : own.until <= now
    if (isOver) void this.end(own)
    else if (isToUnpin(own) && own.holdUntil <= now) void this.#unpin(own)
    // Somebody wants to hear of an eviction.
    else if (this.#isUnattended(own)) {
      own.attendAt = now + ATTEND_AGAIN_MS
      this.#options.rooms.read(own.ticket.key).then(
        (room) => this.#options.onSeen(room),
        () => {},
      )
    }
  }

  #isUnattended({ ticket }: OwnTicket): boolean {
    const { rooms, isHeard } = this.#options
    return isHeard() && rooms.size < MOST_ATTENDED && rooms.get(ticket.key) === undefined
  }

  /** Its minimum hold is over: from now on it ends with its ttl; or at once, if another process has released it meanwhile. */
  async #unpin(own: OwnTicket): Promise<void> {
    own.holdUntil = 0
    try {
      if (await this.#options.keys.bind(own)) return
      const { reply } = await this.#options.cluster.ask(TXN, {
        when: [],
        apply: [{ tag: 'range', key: own.name }],
        otherwise: [],
      })
      const pair = reply.ranges[0]?.pairs[0]
      if (pair?.lease !== own.lease.id || pair.createRevision !== own.createRevision) return
      if (entryOf(pair, this.#options.names).value.state !== 'leaving') return
      own.modRevision = pair.modRevision
      await this.end(own)
    } catch {
      own.pinned = false
    }
  }

  #endClosings(now: number): number {
    let next = Number.POSITIVE_INFINITY
    for (const [name, until] of this.#closings) {
      if (until > now) {
        next = Math.min(next, until)
        continue
      }
      this.#closings.delete(name)
      void this.#insist(
        () => performance.now() > until + CLOSING_MS,
        async () => {
          const operations: Operation[] = [{ tag: 'delete', key: name }]
          await this.#options.cluster.ask(TXN, { when: [], apply: operations, otherwise: [] })
          const { key, id } = this.#options.names.parse(name)
          const room = this.#options.rooms.get(key)
          room?.delete(id)
          if (room !== undefined) this.#options.onSettle(room)
        },
      )
    }
    return next
  }

  /** A room is looked at for a little longer than it is used: whoever comes and goes often need not read it each time. */
  #leaveRooms(used: ReadonlySet<string>, now: number): number {
    let next = Number.POSITIVE_INFINITY
    for (const room of this.#options.rooms.values()) {
      const since = this.#idle.get(room)
      if (used.has(room.key)) this.#idle.delete(room)
      else if (since === undefined) this.#idle.set(room, now)
      else if (since + LINGER_MS <= now) {
        this.#idle.delete(room)
        this.#options.rooms.leave(room.key)
        continue
      }
      if (!used.has(room.key)) next = Math.min(next, (since ?? now) + LINGER_MS)
    }
    return next
  }
}

/** Once its minimum hold is over, the request that unpins it is under way. */
function isToUnpin(own: OwnTicket): boolean {
  return own.pinned && own.holdUntil > 0
}

/** Who is not heard of in time is passed over when its turn comes. If it never comes, it is forgotten after so long. */
const LATE_MS = 5000
/** Most leases are over before anybody could evict them, and need no watch. */
export const ATTEND_MS = 250
const ATTEND_AGAIN_MS = 5000
/** Beyond that an eviction is told with the next renewal: a watch for each of ten thousand leases is too much to ask. */
const MOST_ATTENDED = 1000
const LINGER_MS = 1000
const SOON_MS = 250
const INSISTING: Backoff = { firstMs: 200, longestMs: 2000, jitter: 0.5 }
const CLOSING_MS = 10_000
