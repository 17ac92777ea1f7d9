import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../src/contract/store.ts'
import { memoryStore } from '../src/stores/memory/index.ts'
import type { SimulatedTime } from '../src/testing/index.ts'

/**
 * Masters that share the slots of all keys, on simulated time. Each slot is a memory store, which runs the law. A slot may move to
 * another master; a process that asks the old one is sent on, which costs a request more. A message goes to the process of its
 * ticket alone, as on a channel of its own. Nothing gets lost here. A single master is a server with one store for all keys.
 */
export class SimulatedCluster {
  readonly time: SimulatedTime
  /** Requests that each master was asked so far. */
  readonly requests: number[]
  /** Messages to waiters. */
  messages = 0
  /** Requests that went to a master that no longer has the slot. */
  redirects = 0
  readonly #slots = new Map<number, Store>()
  readonly #owners: number[]
  readonly #hearers = new Map<string, ClusterLink>()

  constructor(time: SimulatedTime, masters: number) {
    this.time = time
    this.requests = new Array(masters).fill(0)
    this.#owners = Array.from({ length: masters > 1 ? SLOTS : 1 }, (_, slot) => slot % masters)
  }

  get requestsInAll(): number {
    return this.requests.reduce((sum, one) => sum + one, 0)
  }

  connect(): Store {
    return new ClusterLink(this, [...this.#owners])
  }

  /** Moves a slot to the next master, with its rooms. */
  move(slot: number): void {
    this.#owners[slot] = ((this.#owners[slot] ?? 0) + 1) % this.requests.length
  }

  /** How many keys have a holder or a waiter. */
  rooms(): number {
    let count = 0
    for (const store of this.#slots.values()) {
      const page = store.inspect({ prefix: '', cursor: undefined, count: 1_000_000 }) as RoomPage
      count += page.rooms.length
    }
    return count
  }

  /** Carries a request to the master of a slot, and its answer back. */
  ask<T>(
    slot: number,
    {
      map,
      ids,
      link,
    }: { readonly map: number[]; readonly ids: readonly string[]; readonly link: ClusterLink },
    act: (store: Store) => T,
  ): Promise<T> {
    return new Promise((resolve) => {
      const arrive = (): void => {
        const asked = map[slot] ?? 0
        this.requests[asked] = (this.requests[asked] ?? 0) + 1
        const owner = this.#owners[slot] ?? 0
        if (asked !== owner) {
          this.redirects += 1
          map[slot] = owner
          this.time.startTimer(2 * LATENCY_MS, arrive)
          return
        }
        for (const id of ids) this.#hearers.set(id, link)
        const answer = act(this.#storeOf(slot))
        this.time.startTimer(LATENCY_MS, () => resolve(answer))
      }
      this.time.startTimer(LATENCY_MS, arrive)
    })
  }

  forget(id: string): void {
    this.#hearers.delete(id)
  }

  #storeOf(slot: number): Store {
    let store = this.#slots.get(slot)
    if (store === undefined) {
      const now = () => ({ ms: this.time.wallMs(), us: Math.floor(this.time.wallMs() * 1000) })
      store = memoryStore({ now, reaches: () => true })
      void store.listen?.((wake) => this.#tell(wake))
      this.#slots.set(slot, store)
    }
    return store
  }

  #tell(wake: Wake): void {
    if (wake.tag === 'all') return
    const link = this.#hearers.get(wake.id)
    if (link === undefined) return
    this.messages += 1
    this.time.startTimer(LATENCY_MS, () => link.hear(wake))
  }
}

/** The cluster as one process sees it. */
class ClusterLink implements Store {
  readonly name = 'simulated'
  readonly #cluster: SimulatedCluster
  readonly #map: number[]
  #onWake: (wake: Wake) => void = () => {}

  constructor(cluster: SimulatedCluster, map: number[]) {
    this.#cluster = cluster
    this.#map = map
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#ask(
      slotOf(ticket.key, this.#map.length),
      [ticket.id],
      (store) => store.acquire(ticket) as AcquireAnswer,
    )
  }

  /** One request to each slot, as on a real cluster: a script may not reach over slots. */
  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const bySlot = new Map<number, { readonly ticket: Ticket; readonly place: number }[]>()
    for (const [place, ticket] of tickets.entries()) {
      const slot = slotOf(ticket.key, this.#map.length)
      const some = bySlot.get(slot)
      if (some === undefined) bySlot.set(slot, [{ ticket, place }])
      else some.push({ ticket, place })
    }
    const answers: RenewAnswer[] = new Array(tickets.length)
    await Promise.all(
      [...bySlot].map(async ([slot, some]) => {
        const asked = some.map(({ ticket }) => ticket)
        const ids = asked.map(({ id }) => id)
        const found = await this.#ask(slot, ids, (store) => store.renew(asked) as readonly RenewAnswer[])
        for (const [index, { place }] of some.entries()) answers[place] = found[index] as RenewAnswer
      }),
    )
    return answers
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    const answer = await this.#ask(
      slotOf(request.key, this.#map.length),
      [],
      (store) => store.release(request) as ReleaseAnswer,
    )
    this.#cluster.forget(request.id)
    return answer
  }

  listen(onWake: (wake: Wake) => void): () => void {
    this.#onWake = onWake
    return () => {
      this.#onWake = () => {}
    }
  }

  hear(wake: Wake): void {
    this.#onWake(wake)
  }

  inspect(_: InspectRequest): Promise<RoomPage> {
    return Promise.resolve({ rooms: [], next: undefined })
  }

  evict(_: EvictRequest): Promise<readonly string[]> {
    return Promise.resolve([])
  }

  async close(): Promise<void> {}

  #ask<T>(slot: number, ids: readonly string[], act: (store: Store) => T): Promise<T> {
    return this.#cluster.ask(slot, { map: this.#map, ids, link: this }, act)
  }
}

/** Any hash that spreads the keys will do. */
function slotOf(key: string, slots: number): number {
  let hash = 0
  for (let index = 0; index < key.length; index += 1) hash = (hash * 31 + key.charCodeAt(index)) | 0
  return (hash ^ (hash >>> 15)) & (slots - 1)
}

/** A power of two, because `slotOf` masks with it. */
export const SLOTS = 1024
const LATENCY_MS = 0.5
