import type { AcquireAnswer, Ticket } from '../../contract/store.ts'
import { isEmpty, isNew, isOlder, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import type { Presence } from './renew.ts'
import { Room } from './rooms/room.ts'
import { kept, ticketValue } from './rooms/ticket-value.ts'
import { termMs } from './session/own-ticket.ts'
import type { Register } from './session/session.ts'

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

  async enter(ticket: Ticket): Promise<AcquireAnswer> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const { coming } = await this.#inTurn(ticket, () => this.#comeIn(ticket))
      const answer = await coming
      if (answer !== undefined) return answer
    }
    throw tooBusy(ticket.key)
  }

  async #comeIn(ticket: Ticket): Promise<Coming> {
    let seen = ticket.patienceMs > 0 ? this.#register.rooms.get(ticket.key) : undefined
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const tried = await this.#try(ticket, wayIn(ticket, seen, tries))
      if ('coming' in tried) return tried
      seen = tried.seen
    }
    throw tooBusy(ticket.key)
  }

  /** One try to come in. If the room is not as it was seen, it comes back with how it is. */
  async #try(ticket: Ticket, way: Way): Promise<Coming | { readonly seen: Room | undefined }> {
    if (way.tag === 'none') return this.#refuse(way.room)
    const { names, leases, rooms, base: bases } = this.#register
    const base = await bases.value()
    const holdLease = await leases.shared(termMs(ticket))
    // Side by side with the request that needs it.
    leases.back(holdLease, termMs(ticket)).catch(() => {})
    const lease = way.tag === 'behind' ? await leases.waiting() : holdLease
    const name = names.ticket(ticket.key, ticket.id)
    const range = names.room(ticket.key)
    const at = Date.now()
    const put: Operation = {
      tag: 'put',
      key: name,
      value: ticketValue(kept(ticket, { at })),
      lease: lease.id,
    }
    const read: Operation = { tag: 'range', ...range }
    // Where there is a watch, it tells a waiter who is there.
    const isUnwatched = way.tag === 'behind' && rooms.get(ticket.key) === undefined
    const told = await this.#register
      .transact({
        when: [
          { that: 'value', is: 'equal', key: base.name, value: base.text },
          way.tag === 'first' ? isEmpty(range) : isNew(name),
          ...(way.tag === 'beside' ? [isOlder(range, way.revision)] : []),
        ],
        apply: isUnwatched ? [read, put] : [put],
        otherwise: [{ tag: 'range', key: base.name }, read],
      })
      .catch((error: unknown) => this.#register.leaseGone(error, lease))
    if (told === undefined) return { seen: undefined }
    const { reply, isDoubtful } = told
    if (reply.succeeded) {
      const entry = this.#register.entryOf(ticket, { name, at, lease: lease.id, revision: reply.revision })
      const own = this.#register.track(entry, ticket, { lease, holdLease, isDoubtful })
      if (way.tag !== 'behind') own.state = 'offered'
      const others = isUnwatched ? reply.ranges[0]?.pairs : undefined
      return { coming: this.#presence.entered(own, others, reply.revision) }
    }
    const pairs = reply.ranges[1]?.pairs ?? []
    const present = pairs.find((pair) => pair.key === name)
    // An earlier try of it may come in yet, after its caller has left.
    if (isDoubtful && present === undefined) this.#register.doubts.add(ticket)
    if (bases.changed(reply.ranges[0]?.pairs[0])) return { seen: undefined }
    if (present !== undefined) return { coming: this.#presence.found(present, ticket, { isDoubtful }) }
    return { seen: this.#seen(ticket, pairs, reply.revision) }
  }

  #seen(ticket: Ticket, pairs: readonly KeyValue[], revision: number): Room {
    const entries = this.#register.entries(pairs)
    const isWatched = this.#register.rooms.get(ticket.key) !== undefined
    if (isWatched && ticket.patienceMs > 0) return this.#register.rooms.open(ticket.key, entries, revision)
    const room = new Room(ticket.key)
    room.fill(entries, revision)
    return room
  }

  /** Tickets of this process whose time is over are no reason to be refused. */
  async #refuse(room: Room): Promise<Coming | { readonly seen: undefined }> {
    const clearing = this.#register.wardens.clearing(room)
    if (clearing === undefined)
      return { coming: Promise.resolve({ tag: 'busy', retryMs: this.#register.untilChange(room) }) }
    await clearing
    return { seen: undefined }
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
          const own = this.#register.track(entry, ticket, { lease, holdLease: lease, isDoubtful })
          own.state = 'offered'
          return this.#presence.entered(own, undefined, reply.revision)
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

  /** etcd carries out what it gets at the same time in any order. Those of one process stay in the order of their calls. */
  #inTurn(ticket: Ticket, comeIn: () => Promise<Coming>): Promise<Coming> {
    if (ticket.patienceMs === 0) return comeIn()
    const { key } = ticket
    const before = this.#entering.get(key)
    const turn = before === undefined ? comeIn() : before.then(comeIn)
    const done = turn.then(
      () => {},
      () => {},
    )
    this.#entering.set(key, done)
    void done.then(() => this.#entering.get(key) === done && this.#entering.delete(key))
    return turn
  }
}

/**
 * What a ticket is put into a room for: to hold as the first one, to hold beside others, or to wait behind them. A key that
 * waits is bound to the lease of waiters, and a key that holds is not, so this is known before the key is written.
 */
function wayIn(ticket: Ticket, seen: Room | undefined, tries: number): Way {
  const isPatient = ticket.patienceMs > 0
  if (seen === undefined || seen.size === 0) return { tag: 'first' }
  // Where many come at once, each of them changes the room for the others. Behind them nothing has to be as it was.
  const isCrowded = isPatient && tries > MOST_BESIDE
  if (seen.admits(ticket) && !isCrowded) return { tag: 'beside', revision: seen.revision }
  return isPatient ? { tag: 'behind' } : { tag: 'none', room: seen }
}

const MOST_BESIDE = 2

type Way =
  | { readonly tag: 'first' }
  | { readonly tag: 'beside'; readonly revision: number }
  | { readonly tag: 'behind' }
  | { readonly tag: 'none'; readonly room: Room }

/** What is to be said is on its way, and the next one may come in. */
interface Coming {
  readonly coming: Promise<AcquireAnswer | undefined>
}

/** A comparison and an operation for each, of 128 that etcd takes in all unless it is told to take more; and one for the fence. */
const MOST_AT_ONCE = 100
