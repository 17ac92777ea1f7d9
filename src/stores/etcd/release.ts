import { type ReleaseAnswer, type ReleaseRequest, TOMBSTONE_MS } from '../../contract/store.ts'
import { isAt, isNew } from './grpc/conditions.ts'
import { isLeaseGone } from './grpc/failures.ts'
import type { Operation, TxnReply } from './grpc/messages.ts'
import { Room } from './rooms/room.ts'
import { kept, ticketValue, tombstoneValue } from './rooms/ticket-value.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Register } from './session/session.ts'

/** How a ticket leaves its room. */
export class Departure {
  readonly #register: Register

  constructor(register: Register) {
    this.#register = register
  }

  async releaseOwn(own: OwnTicket, request: ReleaseRequest): Promise<ReleaseAnswer | undefined> {
    if (own.state === 'leaving') return { was: 'unknown' }
    const was = own.state === 'waiting' ? 'queued' : 'held'
    const isEarly = was === 'held' && own.holdUntil > performance.now()
    if (isEarly) return (await this.#register.wardens.leave(own)) ? { was } : undefined
    // Its deletion is our own doing, and wakes nobody.
    own.questions += 1
    try {
      const removal = await this.#removal(own.name, request.cancel || own.isDoubtful)
      const next = this.#next(own)
      const reply = await this.#leave(own, removal, next)
      this.#register.forget(own)
      if (reply === undefined) return undefined
      this.#register.removed(own)
      return { was }
    } finally {
      own.questions -= 1
    }
  }

  /**
   * Who is let in by this, of the same process: it lives as surely as the one that leaves, so its key is bound to the lease
   * by which it will hold in the same transaction. A waiter of another process does that itself. Until it has, nobody knows
   * whether that process lives.
   */
  #next(own: OwnTicket): readonly OwnTicket[] {
    const room = this.#register.rooms.get(own.ticket.key)
    if (room === undefined || room.closings.size > 0) return []
    const next: OwnTicket[] = []
    for (const { id, createRevision } of room.divide({ without: own.ticket.id }).holders) {
      const other = this.#register.own.get(id)
      const isWaiting = other?.state === 'waiting' && other.createRevision === createRevision
      if (!isWaiting || other.ticket.minHoldMs > 0) continue
      if (other.lease !== other.holdLease && other.holdLease.backs(termMs(other.ticket))) next.push(other)
    }
    return next.slice(0, MOST_NEXT)
  }

  /** Undefined when its key is not ours any more. */
  async #leave(
    own: OwnTicket,
    removal: Operation,
    next: readonly OwnTicket[],
  ): Promise<TxnReply | undefined> {
    const { keys } = this.#register
    const puts = next.map(({ name, ticket, at, holdLease }): Operation => {
      return { tag: 'put', key: name, value: ticketValue(kept(ticket, { at })), lease: holdLease.id }
    })
    let isTogether = false
    try {
      const reply = await keys.change(own, (tries) => {
        isTogether = tries === 0
        if (!isTogether) return { apply: [removal] }
        return {
          when: next.map(({ name, modRevision }) => isAt(name, modRevision)),
          apply: [removal, ...puts],
        }
      })
      for (const other of isTogether ? next : []) {
        if (reply === undefined) other.isDoubtful = true
        else keys.bound(other, { revision: reply.revision, lease: other.holdLease })
      }
      return reply
    } catch (error) {
      if (next.length === 0) throw error
      // One of their leases is gone, say, and the one who waits by it will find out.
      if (isLeaseGone(error)) return this.#leave(own, removal, [])
      // Perhaps carried out: then their keys outlast the lease of waiters.
      for (const other of next) other.isDoubtful = true
      throw error
    }
  }

  async releaseAny({ key, id, cancel }: ReleaseRequest): Promise<ReleaseAnswer | undefined> {
    const name = this.#register.names.ticket(key, id)
    const { reply } = await this.#register.transact({
      when: [],
      apply: [{ tag: 'range', ...this.#register.names.room(key) }],
      otherwise: [],
    })
    const room = new Room(key)
    const entries = this.#register.entries(reply.ranges[0]?.pairs ?? [])
    const present = entries.find((entry) => entry.name === name)
    if (present === undefined) {
      if (!cancel) return { was: 'unknown' }
      const burial = await this.#register.transact({
        when: [isNew(name)],
        apply: [await this.#removal(name, true)],
        otherwise: [],
      })
      return burial.reply.succeeded ? { was: 'unknown' } : undefined
    }
    // An eviction may be nearly forgotten, and what comes late has to have no effect from now on.
    if (present.value.state === 'gone' && cancel) {
      const again = await this.#register.transact({
        when: [isAt(name, present.modRevision)],
        apply: [await this.#removal(name, true)],
        otherwise: [],
      })
      return again.reply.succeeded ? { was: 'unknown' } : undefined
    }
    if (present.value.state !== 'here') return { was: 'unknown' }
    room.fill(entries, reply.revision)
    const isIn = room.divide().holders.some((entry) => entry.id === id)
    const operation: Operation = present.value.pinned
      ? {
          tag: 'put',
          key: name,
          value: ticketValue({ ...present.value, state: 'leaving' }),
          lease: present.lease,
        }
      : await this.#removal(name, cancel)
    const told = await this.#register.transact({
      when: [isAt(name, present.modRevision)],
      apply: [operation],
      otherwise: [],
    })
    return told.reply.succeeded ? { was: isIn ? 'held' : 'queued' } : undefined
  }

  async #removal(name: string, isBuried: boolean): Promise<Operation> {
    if (!isBuried) return { tag: 'delete', key: name }
    const { id } = await this.#register.leases.tombs(TOMBSTONE_MS)
    return { tag: 'put', key: name, value: tombstoneValue({ evicted: false }), lease: id }
  }
}

/** A condition and an operation for each, of 128 that etcd takes unless it is told to take more. */
const MOST_NEXT = 50
