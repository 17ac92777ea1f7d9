import type { Clock } from '../../../contract/clock.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { type Operation, TXN } from '../grpc/messages.ts'
import type { KeyNames } from '../rooms/key-names.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import { lockDelayText, type RoomEntry } from '../rooms/room-entry.ts'
import type { WatchedRooms } from '../rooms/watched-rooms.ts'
import { Alarm } from './alarm.ts'
import { type EtcdLeases, lengthFor } from './leases.ts'
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
  /** By name: when a lock-delay ends, and when its lease has surely ended it. */
  readonly #ends = new Map<string, { readonly until: number; readonly giveUpAt: number }>()
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
    const now = this.#options.clock.monotonicMs()
    const until = now + durationMs
    this.#ends.set(name, { until, giveUpAt: now + lengthFor(durationMs) * 1000 + SPARE_MS })
    this.#alarm.by(until)
  }

  /** How much longer a lock-delay lasts. If another process has begun it, this is the longest possible time. */
  leftMs({ name, value }: RoomEntry): number {
    const end = this.#ends.get(name)
    if (end !== undefined) return Math.max(0, end.until - this.#options.clock.monotonicMs())
    return value.state === 'closing' ? value.ms : 0
  }

  close(): void {
    this.#isClosed = true
    this.#alarm.close()
  }

  #round(): void {
    const now = this.#options.clock.monotonicMs()
    for (const [name, { until, giveUpAt }] of this.#ends) {
      if (until > now) {
        this.#alarm.by(until)
        continue
      }
      this.#ends.delete(name)
      void this.#end(name, giveUpAt)
    }
  }

  async #end(name: string, giveUpAt: number): Promise<void> {
    const { clock, cluster, names, rooms, onOver } = this.#options
    const isOver = () => this.#isClosed || clock.monotonicMs() > giveUpAt
    await retryUntil(clock, isOver, async () => {
      await cluster.ask(TXN, { when: [], apply: [{ tag: 'delete', key: name }], otherwise: [] })
      const { key, id } = names.parse(name)
      const room = rooms.get(key)
      room?.delete(id)
      if (room !== undefined) onOver(room)
    })
  }
}

/** etcd may grant a longer lease than was asked for, and takes a moment to notice that a lease is over. */
const SPARE_MS = 10_000
