import type { Wake } from '../../contract/store.ts'

/**
 * Makes one wake of the wakes that the servers send for the same event. Each server admits a ticket on its own. The ticket is
 * woken when a quorum has admitted it. It is also woken if no more wakes come, because the other servers admitted another one.
 */
export class Wakes {
  readonly #majority: number
  readonly #deliver: (wake: Wake) => void
  readonly #gathered = new Map<string, Gathered>()

  constructor(majority: number, deliver: (wake: Wake) => void) {
    this.#majority = majority
    this.#deliver = deliver
  }

  /** How many tickets were woken a moment ago. */
  get size(): number {
    return this.#gathered.size
  }

  /** A server of this place in the list woke a ticket. */
  heard(id: string, place: number): void {
    const bit = 1 << place
    let gathered = this.#gathered.get(id)
    if (gathered === undefined || (gathered.servers & bit) !== 0) {
      // The same server again: this wake is about a new event.
      clearTimeout(gathered?.timer)
      gathered = { servers: 0, count: 0, timer: undefined, ending: undefined }
      this.#gathered.set(id, gathered)
    }
    gathered.servers |= bit
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
      // Unless it gathers once more, and will be sent again.
      if (this.#gathered.get(id) === gathered && gathered.timer === undefined) this.#gathered.delete(id)
    }, AFTERMATH_MS).unref()
    this.#deliver({ tag: 'ticket', id })
  }
}

interface Gathered {
  servers: number
  count: number
  timer: NodeJS.Timeout | undefined
  ending: NodeJS.Timeout | undefined
}

/** Masters of one lock are rarely further apart than this. */
const GATHER_MS = 20
/** After that a wake is about something new, whichever server it is from. */
const AFTERMATH_MS = 100
