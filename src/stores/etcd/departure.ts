import { type ReleaseAnswer, type ReleaseRequest, TOMBSTONE_MS } from '../../contract/store.ts'
import { isAt, isNew } from './conditions.ts'
import type { Operation } from './messages.ts'
import type { OwnTicket } from './own-ticket.ts'
import type { Register } from './register.ts'
import { Room } from './room.ts'
import { ticketValue, tombstoneValue } from './ticket-value.ts'

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
      const operation = await this.#removal(own.name, request.cancel || own.isDoubtful)
      const { reply } = await this.#register.transact({
        when: [isAt(own.name, own.modRevision)],
        apply: [operation],
        otherwise: [],
      })
      this.#register.forget(own)
      if (!reply.succeeded) return undefined
      this.#register.removed(own)
      return { was }
    } finally {
      own.questions -= 1
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
