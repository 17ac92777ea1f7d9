import { type Share, Sum } from '../../../law/law.ts'
import { Roster } from '../../../law/roster.ts'
import type { RoomEntry, TicketEntry } from './room-entry.ts'

/**
 * One key's tickets as they were at a revision of etcd, in order of arrival. The tickets at the front that may stand together hold.
 * Nothing but this order says so: all processes agree on it, and a deletion is the hand-over.
 *
 * A holder goes on to hold, as no ticket can come before it and each that leaves only makes room. So a room that is a little out of
 * date never shows too many holders, except those that were evicted or lost with their lease.
 */
export class EtcdRoom {
  readonly key: string
  /** In order of arrival. */
  readonly tickets: Roster<TicketEntry> = new Roster()
  /** Lock-delays: while there is one, nobody is admitted. */
  readonly lockDelays: Map<string, RoomEntry> = new Map()
  /** The ticket that came last: mostly the one that asks how many are ahead. */
  #last: string | undefined
  readonly #tombstones = new Set<string>()
  revision = 0

  constructor(key: string) {
    this.key = key
  }

  /** How many keys it has in etcd. */
  get size(): number {
    return this.tickets.size + this.lockDelays.size + this.#tombstones.size
  }

  /** All that there was at a revision, in whatever order. */
  fill(entries: readonly RoomEntry[], revision: number): void {
    for (const id of [...this.tickets.keys()]) this.tickets.delete(id)
    this.lockDelays.clear()
    this.#tombstones.clear()
    for (const entry of [...entries].sort((one, other) => one.createRevision - other.createRevision))
      this.put(entry)
    this.revision = revision
  }

  put(entry: RoomEntry): void {
    const { value } = entry
    this.#tombstones.delete(entry.id)
    if (value.state === 'gone') {
      this.tickets.delete(entry.id)
      this.#tombstones.add(entry.id)
    } else if (value.state === 'closing') this.lockDelays.set(entry.id, entry)
    else {
      const present = this.tickets.get(entry.id)
      // A ticket that went and came again stands behind those that came meanwhile.
      if (present !== undefined && present.createRevision !== entry.createRevision)
        this.tickets.delete(entry.id)
      if (!this.tickets.has(entry.id)) this.#last = entry.id
      this.tickets.set(entry.id, { ...entry, value })
    }
  }

  delete(id: string, createRevision?: number): void {
    if (createRevision !== undefined && this.tickets.get(id)?.createRevision !== createRevision) return
    this.tickets.delete(id)
    this.lockDelays.delete(id)
    this.#tombstones.delete(id)
  }

  /** Whether a ticket that comes now may hold beside all that are there. */
  admits(share: Share): boolean {
    if (this.lockDelays.size > 0) return false
    const sum = new Sum()
    for (const { value } of this.tickets.values()) {
      if (!sum.admits(value)) return false
      sum.add(value)
    }
    return sum.admits(share)
  }

  /** The tickets that hold, and the first that does not; as if `without` were not there. */
  divide({ without }: { readonly without?: string } = {}): {
    readonly holders: readonly RoomEntry[]
    readonly head: RoomEntry | undefined
  } {
    const sum = new Sum()
    const holders: RoomEntry[] = []
    for (const entry of this.tickets.values()) {
      if (entry.id === without) continue
      if (!sum.admits(entry.value)) return { holders, head: entry }
      sum.add(entry.value)
      holders.push(entry)
    }
    return { holders, head: undefined }
  }

  ahead(id: string): number {
    const ahead = id === this.#last && this.tickets.has(id) ? this.tickets.size - 1 : this.#before(id)
    return Math.max(0, ahead - this.divide().holders.length)
  }

  #before(id: string): number {
    let before = 0
    for (const other of this.tickets.keys()) {
      if (other === id) break
      before += 1
    }
    return before
  }
}
