import { type Ticket, TOMBSTONE_MS } from '../../../contract/store.ts'
import { isHoldfastError } from '../../../errors.ts'
import { isAt } from '../grpc/conditions.ts'
import { entryOf } from '../rooms/ticket-value.ts'
import type { Register } from './session.ts'

/**
 * Tickets whose key may be in etcd, or may still come there, although this process does not know it as its own: a request
 * that writes it got no answer. It would be bound to a lease that is kept alive for others, so nobody would ever end it. It is
 * looked for when its time is over, and once more when hardly any request is that late.
 */
export class Doubts {
  readonly #register: Register
  readonly #doubts = new Map<string, Doubt>()
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(register: Register) {
    this.#register = register
  }

  add(ticket: Ticket): void {
    const at = performance.now() + Math.max(ticket.ttlMs, ticket.patienceMs)
    this.#doubts.set(ticket.id, { ticket, at, isLast: false })
    this.#lookIn(AGAIN_MS)
  }

  /** It has left a tombstone, and whatever comes late finds that. */
  settle(id: string): void {
    this.#doubts.delete(id)
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }

  #lookIn(ms: number): void {
    if (this.#timer !== undefined || this.#isClosed) return
    this.#timer = setTimeout(() => void this.#look(), ms)
    this.#timer.unref()
  }

  async #look(): Promise<void> {
    const now = performance.now()
    const due: Doubt[] = []
    for (const doubt of this.#doubts.values()) {
      const own = this.#register.own.get(doubt.ticket.id)
      // Asked for again, and known by now. Should it end by its time, it is looked for after that.
      if (own !== undefined) {
        own.isDoubtful = true
        this.#doubts.delete(doubt.ticket.id)
      } else if (doubt.at <= now) due.push(doubt)
    }
    try {
      for (let start = 0; start < due.length; start += TOGETHER)
        await this.#remove(due.slice(start, start + TOGETHER))
    } catch (error) {
      // The right to ask was taken away, and will not come back by asking.
      if (isHoldfastError(error, 'store-refused')) this.#doubts.clear()
    }
    this.#timer = undefined
    if (this.#doubts.size > 0) this.#lookIn(AGAIN_MS)
  }

  async #remove(doubts: readonly Doubt[]): Promise<void> {
    const { names, leases, own } = this.#register
    const { reply } = await this.#register.transact({
      when: [],
      apply: doubts.map(({ ticket }) => ({ tag: 'range', key: names.ticket(ticket.key, ticket.id) })),
      otherwise: [],
    })
    for (const [index, doubt] of doubts.entries()) {
      const { id } = doubt.ticket
      const pair = reply.ranges[index]?.pairs[0]
      // If it is somebody else's by now, that one ends it. A tombstone has a lease that is of nobody else.
      const isOurs = pair !== undefined && leases.isOurs(pair.lease) && !own.has(id)
      if (isOurs && entryOf(pair, names).value.state === 'here')
        await this.#register.transact({
          when: [isAt(pair.key, pair.modRevision)],
          apply: [{ tag: 'delete', key: pair.key }],
          otherwise: [],
        })
      if (this.#doubts.get(id) !== doubt) continue
      if (doubt.isLast) this.#doubts.delete(id)
      else this.#doubts.set(id, { ...doubt, at: performance.now() + TOMBSTONE_MS, isLast: true })
    }
  }
}

interface Doubt {
  readonly ticket: Ticket
  /** By the monotonic clock. */
  readonly at: number
  readonly isLast: boolean
}

const AGAIN_MS = 1000
/** etcd takes 128 operations in one transaction. */
const TOGETHER = 100
