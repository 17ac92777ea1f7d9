import { type Share, Sum } from '../../../law/law.ts'
import { Roster } from '../../../law/roster.ts'
import type { RoomEntry, TicketEntry } from './room-entry.ts'

/**
 * The tickets of one key as they were at a revision of etcd, in order of arrival. The tickets at the front that may hold together
 * do hold. Only the order decides that: all processes agree on it, and the deletion of a key is the hand-over.
 *
 * A ticket that holds goes on holding, because no ticket can come in front of it and each one that leaves only makes room. So a
 * room that is a little out of date shows too many holders only if some of them were evicted or lost with their lease.
 */
export class EtcdRoom {
  readonly key: string
  /** In order of arrival. */
  readonly tickets: Roster<TicketEntry> = new Roster()
  /** Lock-delays: while there is one, nobody is admitted. */
  readonly lockDelays: Map<string, RoomEntry> = new Map()
  /** The ticket that came last. Usually it is the one that asks how many are ahead. */
  #last: string | undefined
  readonly #tombstones = new Set<string>()
  revision = 0

  constructor(key: string) {
    this.key = key
  }

  /** How many keys the room has in etcd. */
  get size(): number {
    return this.tickets.size + this.lockDelays.size + this.#tombstones.size
  }

  /** Replaces everything by the entries of a revision, which may come in any order. */
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
      // A ticket that left and came again stands behind those that came meanwhile.
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

  /** Whether a new ticket may hold beside all tickets of the room. */
  admits(share: Share): boolean {
    if (this.lockDelays.size > 0) return false
    const sum = new Sum()
    for (const { value } of this.tickets.values()) {
      if (!sum.admits(value)) return false
      sum.add(value)
    }
    return sum.admits(share)
  }

  /** The tickets that hold, and the first one that does not. Leaves the ticket `without` out of account. */
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
