import type { AcquireAnswer, HolderView, RoomView, Store } from '../../src/contract/store.ts'
import type { StoreAnswer, StoreCall } from '../../src/testing/simulated-server.ts'
import type { Rule } from './violation.ts'

type Report = (rule: Rule, message: string) => void

export interface StoreWitnessOptions {
  readonly report: Report
  /** Whether an acquire of this ticket may arrive after all its acquires were answered. */
  readonly mayComeLate: (id: string) => boolean
  /** The store's clock. */
  readonly storeMs: () => number
  /** Whether the process that asked about a ticket last is subscribed. */
  readonly reaches: (id: string) => boolean
}

interface Room {
  /** The waiters, each with its place in the order of arrival. */
  readonly arrivals: Map<string, number>
  /**
   * Waiters that the store did not hear of for their patience. They may keep their place or lose it, so the witness
   * expects nothing of them.
   */
  readonly forgotten: Set<string>
  /** Holders by id, with their fence. */
  holders: Map<string, bigint>
  highestFence: bigint
}

/**
 * Looks into the store after every call that was carried out. It knows nothing of the law's code. It checks three
 * things: holders may stand together, fences rise, and an admitted ticket came before all tickets that still wait.
 */
export class StoreWitness {
  readonly #report: Report
  readonly #options: StoreWitnessOptions
  /** When the store last heard of each waiter. */
  readonly #heardAt = new Map<string, number>()
  readonly #rooms = new Map<string, Room>()
  /** Every grant, in the order of the grants. */
  readonly #grants = new Map<string, number>()
  /** How often the store's clock had been set forward when the store first heard of a ticket. */
  readonly #skipsBefore = new Map<string, number>()
  /**
   * Grants that the store forgot, or whose time it skipped. Also those that a message tells of, if the clock was set forward
   * since the last answer that arrived: the holder takes the grant for later than it was. The witness does not see which answers
   * arrived, so it exempts every ticket that has waited since then. Only the fences of such grants are promised.
   */
  readonly #voided = new Set<string>()
  readonly #evicted = new Set<string>()
  readonly #givenBack = new Set<string>()
  /** The tickets that the present call asks about. */
  #asking: readonly string[] = []
  #arrival = 0
  #fencedSince = 0
  #forgot = false
  #steppedBack = false
  /** How often its clock was set forward. */
  #skips = 0

  constructor(options: StoreWitnessOptions) {
    this.#report = options.report
    this.#options = options
  }

  called(store: Store, call: StoreCall, answer: StoreAnswer): void {
    if (call.verb === 'inspect') return
    this.#judgeLateness(call, answer)
    if (call.verb === 'evict') for (const id of answer as readonly string[]) this.#evicted.add(id)
    const views = roomsOf(store)
    const touched = keysOf(call)
    this.#asking = call.verb === 'acquire' ? [call.ticket.id] : []
    if (call.verb === 'renew') this.#asking = call.tickets.map(({ id }) => id)
    for (const view of views) {
      this.#look(view)
      if (touched.includes(view.key)) this.#judgeHead(view)
    }
    for (const id of this.#asking) {
      this.#heardAt.set(id, this.#options.storeMs())
      if (!this.#skipsBefore.has(id)) this.#skipsBefore.set(id, this.#skips)
    }
    for (const [key, room] of this.#rooms) {
      if (views.some((view) => view.key === key)) continue
      room.holders = new Map()
      room.arrivals.clear()
    }
  }

  /** The position of a grant in the order of all grants; `undefined` if the store never gave it. */
  grantOf(key: string, id: string, fence: bigint): number | undefined {
    return this.#grants.get(nameOf(key, id, fence))
  }

  /** The first grant whose fence can be compared with those of later grants. */
  get fencedSince(): number {
    return this.#fencedSince
  }

  isVoid(key: string, id: string, fence: bigint): boolean {
    return this.#voided.has(nameOf(key, id, fence)) || this.#evicted.has(id)
  }

  wasEvicted(id: string): boolean {
    return this.#evicted.has(id)
  }

  /** Whether the store ever forgot something before its time. */
  get forgetful(): boolean {
    return this.#forgot || this.#skips > 0
  }

  dataLost(): void {
    this.#void()
    for (const room of this.#rooms.values()) {
      room.holders = new Map()
      room.arrivals.clear()
      room.forgotten.clear()
    }
    this.#forgot = true
    this.#startFencesAnew()
  }

  clockJumped(byMs: number): void {
    if (byMs > 0) {
      this.#void()
      this.#skips += 1
    } else {
      this.#steppedBack = true
      this.#startFencesAnew()
    }
  }

  /**
   * Fences survive a loss of data because they contain the time. They survive a clock that is set back because the
   * store keeps the last one. They do not survive both together.
   */
  #startFencesAnew(): void {
    if (!this.#forgot || !this.#steppedBack) return
    for (const room of this.#rooms.values()) room.highestFence = 0n
    this.#fencedSince = this.#grants.size
  }

  #void(): void {
    for (const [key, room] of this.#rooms)
      for (const [id, fence] of room.holders) this.#voided.add(nameOf(key, id, fence))
  }

  #look(view: RoomView): void {
    const room = this.#roomOf(view.key)
    const { units, limit } = sumOf(view.holders)
    if (units > limit) {
      const holders = view.holders.map(({ id, units, limit }) => `${id} (${units} of ${limit})`)
      this.#report('exclusion at the store', `${view.key} is held by ${holders.join(' and ')}`)
    }
    this.#judgeGrants(room, view)
    this.#follow(room, view)
  }

  /** A released ticket stays released, even if an acquire of it arrives after the release. */
  #judgeLateness(call: StoreCall, answer: StoreAnswer): void {
    if (call.verb === 'release') this.#givenBack.add(call.request.id)
    if (call.verb !== 'acquire' || !this.#givenBack.has(call.ticket.id)) return
    if (this.forgetful || this.#options.mayComeLate(call.ticket.id)) return
    const { tag } = answer as AcquireAnswer
    if (tag === 'held' || tag === 'queued')
      this.#report('left behind', `${call.ticket.id} is ${tag} on ${call.ticket.key} after it was given back`)
  }

  #judgeGrants(room: Room, view: RoomView): void {
    const granted = view.holders.filter(({ id, fence }) => !this.#grants.has(nameOf(view.key, id, fence)))
    for (const { id, fence, state } of granted.sort((one, other) => (one.fence < other.fence ? -1 : 1))) {
      if (fence <= room.highestFence)
        this.#report('fence order', `${id} got ${fence} on ${view.key} after ${room.highestFence}`)
      room.highestFence = fence
      this.#grants.set(nameOf(view.key, id, fence), this.#grants.size)
      if (!this.#asking.includes(id) && this.#skips > (this.#skipsBefore.get(id) ?? 0))
        this.#voided.add(nameOf(view.key, id, fence))
      this.#judgeMessage(view, id, state)
      if (room.forgotten.has(id)) continue
      const arrival = room.arrivals.get(id) ?? Number.POSITIVE_INFINITY
      const before = view.queue.find((waiter) => (room.arrivals.get(waiter.id) ?? arrival) < arrival)
      if (before !== undefined)
        this.#report('order of arrival', `${id} was admitted to ${view.key} before ${before.id}`)
    }
  }

  /**
   * A ticket that holds without having asked got a message. If no process receives the message, the key is lost for a
   * whole ttl.
   */
  #judgeMessage({ key }: RoomView, id: string, state: HolderView['state']): void {
    if (state !== 'held' || this.#asking.includes(id)) return
    if (!this.#options.reaches(id)) this.#report('liveness', `${id} holds ${key}, and no message reaches it`)
    const silentMs = this.#options.storeMs() - (this.#heardAt.get(id) ?? 0)
    if (silentMs >= LONGEST_ACCEPT_MS && !this.#steppedBack)
      this.#report('liveness', `${id} holds ${key}, and was not heard of for ${silentMs.toFixed(3)} ms`)
  }

  /**
   * Every call lets in the next waiter. No waiter that was let in may take longer than an acceptance term to answer.
   */
  #judgeHead({ key, holders, queue, closedMs }: RoomView): void {
    const [head] = queue
    if (head !== undefined && closedMs === 0) {
      const { units, limit } = sumOf([...holders, head])
      if (units <= limit) this.#report('liveness', `${head.id} could have ${key}, and still waits`)
    }
    const slow = holders.find(
      ({ state, remainingMs }) => state === 'offered' && remainingMs > LONGEST_ACCEPT_MS,
    )
    if (slow !== undefined && !this.#steppedBack)
      this.#report('liveness', `${key} waits for ${slow.id} for ${slow.remainingMs.toFixed(3)} ms`)
  }

  #follow(room: Room, view: RoomView): void {
    room.holders = new Map(view.holders.map(({ id, fence }) => [id, fence]))
    const waiting = new Set(view.queue.map(({ id }) => id))
    for (const id of room.arrivals.keys()) {
      if (waiting.has(id)) continue
      room.arrivals.delete(id)
      if (!room.holders.has(id)) room.forgotten.add(id)
    }
    for (const { id } of view.queue) {
      if (room.arrivals.has(id) || room.forgotten.has(id)) continue
      this.#arrival += 1
      room.arrivals.set(id, this.#arrival)
    }
    const order = view.queue.flatMap(({ id }) => room.arrivals.get(id) ?? [])
    if (order.some((arrival, index) => arrival < (order[index - 1] ?? 0)))
      this.#report('order of arrival', `The queue of ${view.key} is not in order: ${order.join(' ')}`)
  }

  #roomOf(key: string): Room {
    const present = this.#rooms.get(key)
    if (present !== undefined) return present
    const room: Room = { arrivals: new Map(), forgotten: new Set(), holders: new Map(), highestFence: 0n }
    this.#rooms.set(key, room)
    return room
  }
}

/** The memory store answers at once. */
export function roomsOf(store: Store): readonly RoomView[] {
  const page = store.inspect({ prefix: '', cursor: undefined, count: 1000 })
  if (page instanceof Promise) throw new TypeError('Expected a store that answers at once, got a promise')
  return page.rooms
}

function sumOf(shares: readonly { readonly units: number; readonly limit: number }[]): {
  readonly units: number
  readonly limit: number
} {
  return {
    units: shares.reduce((sum, share) => sum + share.units, 0),
    limit: Math.min(...shares.map((share) => share.limit)),
  }
}

function keysOf(call: StoreCall): readonly string[] {
  switch (call.verb) {
    case 'acquire':
      return [call.ticket.key]
    case 'renew':
      return call.tickets.map(({ key }) => key)
    case 'release':
    case 'evict':
      return [call.request.key]
    case 'inspect':
      return []
    default:
      return call satisfies never
  }
}

/** The acceptance term of the engine. A process that does not answer within it is away. */
const LONGEST_ACCEPT_MS = 3000

function nameOf(key: string, id: string, fence: bigint): string {
  return `${key} ${id} ${fence}`
}
