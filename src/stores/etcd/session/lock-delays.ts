import type { Clock } from '../../../contract/clock.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isAt, MOST_TRIES, tooBusy } from '../grpc/conditions.ts'
import { type Operation, TXN } from '../grpc/messages.ts'
import type { KeyNames } from '../rooms/key-names.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import { lockDelayText, type RoomEntry } from '../rooms/room-entry.ts'
import type { WatchedRooms } from '../rooms/watched-rooms.ts'
import { Alarm } from './alarm.ts'
import type { EtcdLeases } from './leases.ts'
import { retryUntil } from './retry-until.ts'

export interface LockDelaysOptions {
  readonly clock: Clock
  readonly cluster: Pick<Cluster, 'ask'>
  readonly names: KeyNames
  readonly leases: Pick<EtcdLeases, 'expiring'>
  readonly rooms: Pick<WatchedRooms, 'get'>
  /** The lock-delay of a room is over. */
  onOver(room: EtcdRoom): void
}

/**
 * The lock-delays that this process has begun. It deletes each one at its time. If the process has died, an etcd lease does it.
 */
export class LockDelays {
  readonly #options: LockDelaysOptions
  /** By name. */
  readonly #begun = new Map<string, BegunLockDelay>()
  readonly #alarm: Alarm
  #isClosed = false

  constructor(options: LockDelaysOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** The operation that writes the lock-delay of a ticket. */
  async operation(key: string, id: string, durationMs: number): Promise<LockDelayKey> {
    const { names, leases } = this.#options
    const lease = await leases.expiring(durationMs, { mayBeLonger: true })
    return { tag: 'put', key: names.lockDelay(key, id), value: lockDelayText(durationMs), lease: lease.id }
  }

  /** A lock-delay is written, or is about to be. From now on this process ends it. */
  begin({ key: name, lease }: LockDelayKey, durationMs: number): void {
    const until = this.#options.clock.monotonicMs() + durationMs
    // An earlier write of the same lock-delay, whose answer was lost, may be carried out after this one.
    const leases = new Set(this.#begun.get(name)?.leases).add(lease)
    this.#begun.set(name, { until, leases, isEnding: false })
    this.#alarm.by(until)
  }

  /**
   * How much longer a lock-delay lasts. 0 if its key is being deleted. If another process has begun it, this is the longest
   * possible time.
   */
  leftMs({ name, value, lease }: RoomEntry): number {
    const begun = this.#begun.get(name)
    if (begun?.leases.has(lease)) return Math.max(0, begun.until - this.#options.clock.monotonicMs())
    return value.state === 'closing' ? value.ms : 0
  }

  close(): void {
    this.#isClosed = true
    this.#alarm.close()
  }

  #round(): void {
    const now = this.#options.clock.monotonicMs()
    for (const [name, begun] of this.#begun) {
      if (begun.isEnding) continue
      if (begun.until > now) this.#alarm.by(begun.until)
      else void this.#end(name, begun)
    }
  }

  async #end(name: string, begun: BegunLockDelay): Promise<void> {
    const { clock } = this.#options
    const ending = { ...begun, isEnding: true }
    this.#begun.set(name, ending)
    // The same ticket may have held again, and begun another lock-delay of this name.
    const isOver = () => this.#isClosed || this.#begun.get(name) !== ending
    // It tries however long that takes: a new leader of etcd gives the lease of the key its whole length again.
    await retryUntil(clock, isOver, async () => {
      const isGone = await this.#delete(name, ending, isOver)
      if (isOver()) return
      this.#begun.delete(name)
      if (isGone) this.#over(name)
    })
  }

  /** False if the key belongs to another lock-delay of the same ticket. */
  async #delete(name: string, { leases }: BegunLockDelay, isOver: () => boolean): Promise<boolean> {
    const { cluster } = this.#options
    const read: Operation = { tag: 'range', key: name }
    for (let tries = 0; tries < MOST_TRIES && !isOver(); tries += 1) {
      const { reply } = await cluster.ask(TXN, { when: [], apply: [read], otherwise: [] })
      const pair = reply.ranges[0]?.pairs[0]
      if (pair === undefined) return true
      if (!leases.has(pair.lease) || isOver()) return false
      // A request without an answer may arrive late, and must not end the next lock-delay.
      const when = [isAt(name, pair.modRevision)]
      const deletion: Operation = { tag: 'delete', key: name }
      const deleted = await cluster.ask(TXN, { when, apply: [deletion], otherwise: [] })
      if (deleted.reply.succeeded) return true
    }
    if (isOver()) return false
    throw tooBusy(name)
  }

  #over(name: string): void {
    const { names, rooms, onOver } = this.#options
    const { key, id } = names.parse(name)
    const room = rooms.get(key)
    room?.delete(id)
    if (room !== undefined) onOver(room)
  }
}

/** The operation that writes the key of a lock-delay. */
export type LockDelayKey = Operation & { readonly tag: 'put' }

interface BegunLockDelay {
  /** When it ends, by the monotonic clock. */
  readonly until: number
  /** The etcd leases to which this process may have bound its key. */
  readonly leases: ReadonlySet<number>
  /** Its key is being deleted. */
  readonly isEnding: boolean
}
