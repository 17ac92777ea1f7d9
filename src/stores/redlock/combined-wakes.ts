import type { Wake } from '../../contract/store.ts'
import { has, NO_SERVERS, type ServerSet, withServer } from './server-set.ts'

/**
 * Makes one wake of the wakes that the servers send for the same event. Each server admits a ticket by itself. The ticket is
 * woken when a quorum has admitted it. It is also woken a moment after the first of these wakes: perhaps no more come, because
 * the other servers admitted another ticket.
 */
export class CombinedWakes {
  readonly #majority: number
  readonly #deliver: (wake: Wake) => void
  /** By ticket: the servers that woke it for the same event. */
  readonly #gathered = new Map<string, Gathered>()

  constructor(majority: number, deliver: (wake: Wake) => void) {
    this.#majority = majority
    this.#deliver = deliver
  }

  /** For how many tickets a wake was heard a moment ago. */
  get size(): number {
    return this.#gathered.size
  }

  /** This server woke a ticket. */
  heard(id: string, server: { readonly index: number }): void {
    let gathered = this.#gathered.get(id)
    if (gathered === undefined || has(gathered.servers, server)) {
      // The second wake of a server is about a new event.
      clearTimeout(gathered?.timer)
      gathered = { servers: NO_SERVERS, count: 0, timer: undefined, ending: undefined }
      this.#gathered.set(id, gathered)
    }
    gathered.servers = withServer(gathered.servers, server)
    gathered.count += 1
    // The ticket was woken for this event already.
    if (gathered.count > this.#majority) return
    if (gathered.count === this.#majority) this.#send(id, gathered)
    else gathered.timer ??= setTimeout(() => this.#send(id, gathered), GATHER_MS).unref()
  }

  close(): void {
    for (const { timer, ending } of this.#gathered.values()) {
      clearTimeout(timer)
      clearTimeout(ending)
    }
    this.#gathered.clear()
  }

  #send(id: string, gathered: Gathered): void {
    clearTimeout(gathered.timer)
    gathered.timer = undefined
    clearTimeout(gathered.ending)
    gathered.ending = setTimeout(() => {
      // Unless the ticket gathers wakes for another event, and will be woken for that.
      if (this.#gathered.get(id) === gathered && gathered.timer === undefined) this.#gathered.delete(id)
    }, AFTERMATH_MS).unref()
    this.#deliver({ tag: 'ticket', id })
  }
}

interface Gathered {
  servers: ServerSet
  count: number
  /** Wakes the ticket if no quorum of wakes comes. */
  timer: NodeJS.Timeout | undefined
  /** Forgets the event. */
  ending: NodeJS.Timeout | undefined
}

/** The wakes of one event rarely come further apart than this. */
const GATHER_MS = 20
/** After so long a wake of any server is about a new event. */
const AFTERMATH_MS = 100
