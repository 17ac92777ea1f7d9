import type { AcquireAnswer, Ticket } from '../../contract/store.ts'
import { isEmpty, isNew, isOlder, tooBusy } from './conditions.ts'
import type { Lease } from './leases.ts'
import type { Compare, KeyValue, Operation, TxnReply, TxnRequest } from './messages.ts'
import { termMs } from './own-ticket.ts'
import type { Presence } from './presence.ts'
import type { Register } from './register.ts'
import { Room } from './room.ts'
import { kept, ticketValue } from './ticket-value.ts'

/** How a ticket comes into its room. */
export class Entrance {
  readonly #register: Register
  readonly #presence: Presence
  /** By key: the request of the one who came last, while it is under way. */
  readonly #entering = new Map<string, Promise<void>>()

  constructor(register: Register, presence: Presence) {
    this.#register = register
    this.#presence = presence
  }

  /** One try to come in. Undefined when something changed meanwhile, so that it has to be tried again. */
  async enter(ticket: Ticket): Promise<AcquireAnswer | undefined> {
    const base = await this.#register.base.value()
    const lease = await this.#register.leases.shared(termMs(ticket))
    // Side by side with the request that needs it.
    const backed = this.#register.leases.back(lease, termMs(ticket))
    backed.catch(() => {})
    const name = this.#register.names.ticket(ticket.key, ticket.id)
    const at = Date.now()
    const put: Operation = {
      tag: 'put',
      key: name,
      value: ticketValue(kept(ticket, { at })),
      lease: lease.id,
    }
    const range: Operation = { tag: 'range', ...this.#register.names.room(ticket.key) }
    const otherwise: Operation[] = [{ tag: 'range', key: base.name }, range]
    const known: Compare = { that: 'value', is: 'equal', key: base.name, value: base.text }
    const room = this.#register.rooms.get(ticket.key)
    const isPatient = ticket.patienceMs > 0
    const told = await this.#inTurn(ticket, {
      // Who does not wait comes in only where nobody is. Or else it reads who is there.
      when: [known, isPatient ? isNew(name) : isEmpty(this.#register.names.room(ticket.key))],
      apply: isPatient && room === undefined ? [range, put] : [put],
      otherwise,
    }).catch((error: unknown) => this.#register.leaseGone(error, lease))
    if (told === undefined) return undefined
    const { reply, isDoubtful } = told
    if (reply.succeeded) {
      const entry = this.#register.entryOf(ticket, { name, at, lease: lease.id, revision: reply.revision })
      const own = this.#register.track(entry, ticket, { lease, isDoubtful })
      // Where nobody waits for its turn, it came in because nobody was there.
      const others = isPatient && room !== undefined ? undefined : reply.ranges[0]?.pairs
      return this.#presence.entered(own, others, reply.revision)
    }
    const pairs = reply.ranges[1]?.pairs ?? []
    const present = pairs.find((pair) => pair.key === name)
    // An earlier try of it may come in yet, after its caller has left.
    if (isDoubtful && present === undefined) this.#register.doubts.add(ticket)
    if (this.#register.base.changed(reply.ranges[0]?.pairs[0])) return undefined
    if (present !== undefined) return this.#presence.found(present, ticket, { isDoubtful })
    if (isPatient) return undefined
    return this.#squeezeIn(ticket, { pairs, revision: reply.revision, put, known, lease, at })
  }

  /**
   * All in one transaction, if nobody is in any of their rooms; so they have one revision, and thereby one fence. Undefined
   * when somebody is, or when they are too many for one transaction.
   */
  async enterAll(tickets: readonly Ticket[]): Promise<readonly bigint[] | undefined> {
    if (tickets.length > MOST_AT_ONCE) return undefined
    const longestMs = Math.max(...tickets.map(termMs))
    const base = await this.#register.base.value()
    const lease = await this.#register.leases.shared(longestMs)
    const backed = this.#register.leases.back(lease, longestMs)
    backed.catch(() => {})
    const at = Date.now()
    const names = tickets.map(({ key, id }) => this.#register.names.ticket(key, id))
    const told = await this.#register
      .transact({
        when: [
          { that: 'value', is: 'equal', key: base.name, value: base.text },
          ...tickets.map(({ key }) => isEmpty(this.#register.names.room(key))),
        ],
        apply: tickets.map((ticket, index) => ({
          tag: 'put',
          key: names[index] as string,
          value: ticketValue(kept(ticket, { at })),
          lease: lease.id,
        })),
        // Ours may be there already, by a request whose answer was lost.
        otherwise: names.map((key) => ({ tag: 'range', key })),
      })
      .catch((error: unknown) => this.#register.leaseGone(error, lease))
    if (told === undefined) return undefined
    const { reply, isDoubtful } = told
    const answers = reply.succeeded
      ? tickets.map((ticket, index) => {
          const name = names[index] as string
          const entry = this.#register.entryOf(ticket, {
            name,
            at,
            lease: lease.id,
            revision: reply.revision,
          })
          const own = this.#register.track(entry, ticket, { lease, isDoubtful })
          return this.#presence.entered(own, [], reply.revision)
        })
      : reply.ranges.map(({ pairs: [pair] }, index) =>
          pair === undefined
            ? undefined
            : this.#presence.found(pair, tickets[index] as Ticket, { isDoubtful }),
        )
    if (answers.every((answer) => answer === undefined)) {
      // An earlier try may come in yet, once nobody is there.
      if (isDoubtful) for (const ticket of tickets) this.#register.doubts.add(ticket)
      return undefined
    }
    return (await Promise.all(answers)).map((answer, index) => {
      if (answer?.tag === 'held') return answer.fence
      throw tooBusy((tickets[index] as Ticket).key)
    })
  }

  /** For one that does not wait, where others are: it comes in if it may stand beside them and nobody comes before it. */
  async #squeezeIn(ticket: Ticket, seen: Seen): Promise<AcquireAnswer | undefined> {
    const room = new Room(ticket.key)
    room.fill(this.#register.entries(seen.pairs), seen.revision)
    const { head } = room.divide()
    const name = this.#register.names.ticket(ticket.key, ticket.id)
    room.put(this.#register.entryOf(ticket, { name, at: seen.at, lease: 0, revision: seen.revision + 1 }))
    const isAdmitted = head === undefined && room.closings.size === 0 && room.divide().head === undefined
    if (!isAdmitted) {
      room.delete(ticket.id)
      // Tickets of ours whose time is over are no reason to be refused.
      const clearing = this.#register.wardens.clearing(room)
      if (clearing === undefined) return { tag: 'busy', retryMs: this.#register.untilChange(room) }
      await clearing
      return undefined
    }
    const { reply, isDoubtful } = await this.#register.transact({
      when: [seen.known, isOlder(this.#register.names.room(ticket.key), seen.revision)],
      apply: [seen.put],
      otherwise: [],
    })
    if (!reply.succeeded) {
      if (isDoubtful) this.#register.doubts.add(ticket)
      return undefined
    }
    const entry = this.#register.entryOf(ticket, {
      name,
      at: seen.at,
      lease: seen.lease.id,
      revision: reply.revision,
    })
    const own = this.#register.track(entry, ticket, { lease: seen.lease, isDoubtful })
    own.state = 'offered'
    return this.#presence.ask(own, ticket) as Promise<AcquireAnswer | undefined>
  }

  /** etcd carries out what it gets at the same time in any order. Those of one process stay in the order of their calls. */
  #inTurn(ticket: Ticket, request: TxnRequest): Promise<{ reply: TxnReply; isDoubtful: boolean }> {
    if (ticket.patienceMs === 0) return this.#register.transact(request)
    const { key } = ticket
    const before = this.#entering.get(key)
    const turn =
      before === undefined
        ? this.#register.transact(request)
        : before.then(() => this.#register.transact(request))
    const done = turn.then(
      () => {},
      () => {},
    )
    this.#entering.set(key, done)
    void done.then(() => this.#entering.get(key) === done && this.#entering.delete(key))
    return turn
  }
}

interface Seen {
  readonly pairs: readonly KeyValue[]
  readonly revision: number
  readonly put: Operation
  readonly known: Compare
  readonly lease: Lease
  readonly at: number
}

/** A comparison and an operation for each, of 128 that etcd takes in all unless it is told to take more; and one for the fence. */
const MOST_AT_ONCE = 100
