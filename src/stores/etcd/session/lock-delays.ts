import type { Clock } from '../../../contract/clock.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isAt } from '../grpc/conditions.ts'
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
  /** By name: when a lock-delay ends. */
  readonly #ends = new Map<string, number>()
  readonly #alarm: Alarm
  #isClosed = false

  constructor(options: LockDelaysOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** The operation that writes the lock-delay of a ticket. */
  async operation(key: string, id: string, durationMs: number): Promise<Operation & { readonly tag: 'put' }> {
    const { names, leases } = this.#options
    const lease = await leases.expiring(durationMs, { mayBeLonger: true })
    return { tag: 'put', key: names.lockDelay(key, id), value: lockDelayText(durationMs), lease: lease.id }
  }

  /** The lock-delay of this name is written, or is about to be. From now on this process ends it. */
  begin(name: string, durationMs: number): void {
    const until = this.#options.clock.monotonicMs() + durationMs
    this.#ends.set(name, until)
    this.#alarm.by(until)
  }

  /** How much longer a lock-delay lasts. If another process has begun it, this is the longest possible time. */
  leftMs({ name, value }: RoomEntry): number {
    const end = this.#ends.get(name)
    if (end !== undefined) return Math.max(0, end - this.#options.clock.monotonicMs())
    return value.state === 'closing' ? value.ms : 0
  }

  close(): void {
    this.#isClosed = true
    this.#alarm.close()
  }

  #round(): void {
    const now = this.#options.clock.monotonicMs()
    for (const [name, until] of this.#ends) {
      if (until > now) {
        this.#alarm.by(until)
        continue
      }
      this.#ends.delete(name)
      void this.#end(name)
    }
  }

  async #end(name: string): Promise<void> {
    const { clock, cluster, names, rooms, onOver } = this.#options
    // The same ticket may have held again, and begun another lock-delay of this name.
    const isOver = () => this.#isClosed || this.#ends.has(name)
    // It tries however long that takes: a new leader of etcd gives the lease of the key its whole length again.
    await retryUntil(clock, isOver, async () => {
      const read: Operation = { tag: 'range', key: name }
      const { reply } = await cluster.ask(TXN, { when: [], apply: [read], otherwise: [] })
      const pair = reply.ranges[0]?.pairs[0]
      if (isOver()) return
      // A request without an answer may arrive late, and must not end the next lock-delay.
      if (pair !== undefined) {
        const when = [isAt(name, pair.modRevision)]
        const deletion: Operation = { tag: 'delete', key: name }
        const deleted = await cluster.ask(TXN, { when, apply: [deletion], otherwise: [] })
        if (!deleted.reply.succeeded || isOver()) return
      }
      const { key, id } = names.parse(name)
      const room = rooms.get(key)
      room?.delete(id)
      if (room !== undefined) onOver(room)
    })
  }
}
