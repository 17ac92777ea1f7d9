import { expect } from 'vitest'
import type { Store, Ticket } from '../../src/contract/store.ts'
import { type Random, seededRandom } from '../../src/testing/random.ts'

const STEPS = 60
/** Longer than a new group takes more waiters. */
const NO_MORE_JOIN_MS = 60

/** One process, with two stores: one makes groups of two waiters or more, and one makes none. */
export interface Pair {
  readonly groups: Store
  readonly alone: Store
}

interface Played {
  /** Three processes. */
  readonly pairs: readonly Pair[]
  /** Moves the clock of all stores on. */
  readonly pass: (ms: number) => void | Promise<void>
  /** Whether a process may ask about a ticket of another one from then on. No process of the engine does. */
  readonly moves: boolean
}

export const PROCESSES = 3

/** Plays random histories to each process' two stores. Every waiter has to have the same fate in a group and alone. */
export async function sameFateInGroups({
  histories,
  ...played
}: Played & { histories: number }): Promise<void> {
  const seed = crypto.randomUUID()
  const random = seededRandom(seed)
  for (let history = 0; history < histories; history += 1) {
    await played.pass(0)
    await new GroupHistory(`key ${history}`, { ...played, random, seed }).play()
  }
}

class GroupHistory {
  readonly #key: string
  readonly #random: Random
  readonly #pairs: readonly Pair[]
  readonly #seed: string
  readonly #pass: Played['pass']
  readonly #moves: boolean
  readonly #terms: Partial<Ticket>
  readonly #log: string[] = []
  /** The tickets of each process. */
  readonly #tickets: Ticket[][] = Array.from({ length: PROCESSES }, () => [])
  #count = 0

  constructor(key: string, with_: Played & { random: Random; seed: string }) {
    this.#key = key
    this.#pairs = with_.pairs
    this.#random = with_.random
    this.#seed = with_.seed
    this.#pass = with_.pass
    this.#moves = with_.moves
    const isSlow = this.#random.chance(0.2)
    this.#terms = { minHoldMs: isSlow ? 500 : 0, lockDelayMs: isSlow ? 300 : 0 }
  }

  async play(): Promise<void> {
    for (let step = 0; step < STEPS; step += 1) {
      const process = this.#random.between(0, PROCESSES - 1)
      await this.#step(process)
      await this.#compare('the room', 0, async (store) => {
        const { rooms } = await store.inspect({ prefix: this.#key, cursor: undefined, count: 1 })
        const room = rooms.find(({ key }) => key === this.#key)
        const holders = room?.holders.map(({ id, state, remainingMs }) => ({ id, state, remainingMs }))
        return { holders, queue: room?.queue.map(({ id }) => id), closedMs: room?.closedMs }
      })
    }
  }

  async #step(process: number): Promise<void> {
    const mine = this.#tickets[process] as Ticket[]
    const one = mine.length === 0 ? undefined : this.#random.pick(mine)
    const chance = this.#random.between(1, 100)
    if (chance <= 25 || one === undefined) return this.#acquire(process, this.#newTicket())
    if (chance <= 55) return this.#renew(process, mine)
    if (chance <= 65) return this.#release(process, one)
    if (chance <= 68) {
      await this.#compare(`evict ${one.id}`, process, (store) =>
        store.evict({ key: this.#key, id: one.id, reason: 'a test' }),
      )
    } else if (chance <= 71) {
      if (!this.#moves) return
      const other = (process + 1) % PROCESSES
      this.#drop(process, one)
      this.#tickets[other]?.push(one)
      await this.#renew(other, [one])
    } else if (chance <= 73) {
      // The server remembers them as long as others of their groups. No further waiter joins their groups from now on.
      mine.length = 0
      await new Promise((resolve) => setTimeout(resolve, NO_MORE_JOIN_MS))
    } else if (chance <= 77) await this.#acquire(process, one)
    else {
      await this.#pass(this.#random.pick([1, 50, 700, 1500, 1900]))
      // Every process asks in time, and some of them in two requests.
      for (const [each, tickets] of this.#tickets.entries()) {
        const first = this.#random.chance(0.3) ? tickets.filter(() => this.#random.chance(0.5)) : tickets
        const second = tickets.filter((ticket) => !first.includes(ticket))
        await this.#renew(each, first)
        await this.#renew(each, second)
      }
    }
  }

  #newTicket(): Ticket {
    this.#count += 1
    return {
      ...{
        key: this.#key,
        id: `${this.#key}/${this.#count}`,
        units: 1,
        limit: this.#random.pick([1, 1, 2, 3]),
      },
      ...{ ttlMs: 5000, acceptMs: 3000, patienceMs: 6000, minHoldMs: 0, lockDelayMs: 0 },
      ...{ owner: '{"a slash":"x/y z"}', ...this.#terms },
    }
  }

  async #acquire(process: number, ticket: Ticket): Promise<void> {
    const mine = this.#tickets[process] as Ticket[]
    if (!mine.includes(ticket)) mine.push(ticket)
    await this.#compare(`acquire ${ticket.id}`, process, async (store) => (await store.acquire(ticket)).tag)
  }

  async #renew(process: number, asked: readonly Ticket[]): Promise<void> {
    const tickets = [...asked]
    if (tickets.length === 0) return
    const ids = tickets.map(({ id }) => id).join(' ')
    const tags = await this.#compare(`renew ${ids}`, process, async (store) =>
      (await store.renew(tickets)).map(({ tag }) => tag),
    )
    for (const [at, tag] of tags.entries()) if (tag === 'gone') this.#drop(process, tickets[at] as Ticket)
  }

  async #release(process: number, ticket: Ticket): Promise<void> {
    this.#drop(process, ticket)
    const cancel = this.#random.chance(0.3)
    await this.#compare(`release ${ticket.id}`, process, (store) =>
      store.release({ key: this.#key, id: ticket.id, cancel }),
    )
  }

  #drop(process: number, ticket: Ticket): void {
    const mine = this.#tickets[process] as Ticket[]
    const at = mine.indexOf(ticket)
    if (at >= 0) mine.splice(at, 1)
  }

  async #compare<T>(what: string, process: number, ask: (store: Store) => T | Promise<T>): Promise<T> {
    const { groups, alone } = this.#pairs[process] as Pair
    const [inGroups, expected] = [await ask(groups), await ask(alone)]
    this.#log.push(`process ${process}: ${what} -> ${JSON.stringify(expected)}`)
    expect(inGroups, `seed ${this.#seed}\n${this.#log.slice(-12).join('\n')}`).toEqual(expected)
    return expected
  }
}
