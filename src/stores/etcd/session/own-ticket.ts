import { assert } from '../../../base/assert.ts'
import type { Ticket } from '../../../contract/store.ts'
import type { EtcdLease } from './leases.ts'

/**
 * The state of a ticket of this process, as far as the process knows. All instants are of the monotonic clock.
 *
 * | method    | from                    | to      | because                                                            |
 * |-----------|-------------------------|---------|--------------------------------------------------------------------|
 * | offered   | waiting                 | offered | it is its turn, or nobody was in front of it when it came          |
 * | confirmed | offered, held           | held    | its holder asked                                                   |
 * | renewed   | held                    | held    | its holder asked, or was answered: its ttl counts anew             |
 * | left      | held                    | leaving | it was released before its minimum hold was over                   |
 * | expired   | waiting … leaving       | ended   | its time is over, and its key is being deleted                     |
 * | forgotten | any, but once           | over    | its key is gone, or belongs to another process                     |
 */
export type TicketState =
  /** Its place in the queue is remembered until then; `heardAt`: when it was asked about last. */
  | { readonly tag: 'waiting'; readonly heardAt: number; readonly rememberedUntil: number }
  | { readonly tag: 'offered'; readonly since: number; readonly until: number }
  | Held
  | { readonly tag: 'leaving'; readonly since: number; readonly until: number }
  /** `done` resolves when its key is deleted, or belongs to another process. */
  | { readonly tag: 'ending'; readonly done: Promise<void> }
  | { readonly tag: 'forgotten' }

export interface Held {
  readonly tag: 'held'
  readonly since: number
  readonly until: number
  /** The end of its minimum hold; 0 without one, and once it is over. */
  readonly minHoldUntil: number
}

/** The lease to which a key is bound, since which revision of the key. */
export interface Binding {
  readonly revision: number
  /** The lease of waiters until it is its turn, and then one that lasts for its term. */
  readonly lease: EtcdLease
  /** Whether that lease lasts for the minimum hold, whatever becomes of this process. */
  readonly isForMinHold: boolean
}

export interface OwnTicketOptions {
  readonly ticket: Ticket
  /** Its key in etcd. */
  readonly name: string
  readonly createRevision: number
  readonly fence: bigint
  readonly binding: Binding
  /** The lease under which it holds or will hold. It is kept alive during the wait, so that a grant has its full ttl at once. */
  readonly holdLease: EtcdLease
  /** When it came, by the wall clock: for people. */
  readonly at: number
  /** An acquire of it may still be on its way. */
  readonly isInDoubt: boolean
}

/** A ticket that this process keeps alive: its key is bound to a lease of this process. */
export class OwnTicket {
  readonly name: string
  readonly createRevision: number
  readonly fence: bigint
  readonly holdLease: EtcdLease
  readonly at: number
  #ticket: Ticket
  #binding: Binding
  #state: TicketState
  #isInDoubt: boolean
  /** Questions about it that are under way: it is answered by these, and needs no wake. */
  #questions = 0
  /** The revision of its key when its room was read for it last. */
  #readAt = 0

  constructor(options: OwnTicketOptions, now: number) {
    this.name = options.name
    this.createRevision = options.createRevision
    this.fence = options.fence
    this.holdLease = options.holdLease
    this.at = options.at
    this.#ticket = options.ticket
    this.#binding = options.binding
    this.#isInDoubt = options.isInDoubt
    this.#state = { tag: 'waiting', heardAt: now, rememberedUntil: now + options.ticket.patienceMs }
  }

  /** As it was last asked for. */
  get ticket(): Ticket {
    return this.#ticket
  }

  get state(): TicketState {
    return this.#state
  }

  get binding(): Binding {
    return this.#binding
  }

  get isInDoubt(): boolean {
    return this.#isInDoubt
  }

  get isAsked(): boolean {
    return this.#questions > 0
  }

  /** A request of it got no answer: it may be carried out later than everything that is asked from now on. */
  putInDoubt(): void {
    this.#isInDoubt = true
  }

  /** While `work` runs, whoever asks is answered by it, and is not woken. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#questions += 1
    try {
      return await work()
    } finally {
      this.#questions -= 1
    }
  }

  /** Whether its room is read for the first time since its key was written: the room is as new as that write. */
  isFirstRead(): boolean {
    const isFirst = this.#readAt !== this.#binding.revision
    this.#readAt = this.#binding.revision
    return isFirst
  }

  /** Its key was written with this lease, or was seen so. An older revision says nothing. Returns whether it was taken note of. */
  bound(binding: Binding): boolean {
    if (binding.revision < this.#binding.revision) return false
    this.#binding = binding
    return true
  }

  /** A waiter asks: it is remembered anew. Says nothing of a ticket that does not wait. */
  heard(ticket: Ticket, now: number): void {
    if (this.#state.tag !== 'waiting') return
    this.#state = { tag: 'waiting', heardAt: now, rememberedUntil: now + ticket.patienceMs }
  }

  /** It was told that it goes on waiting, on these terms. */
  waits(ticket: Ticket): void {
    this.#from('waiting')
    this.#ticket = ticket
  }

  offered(now: number, forMs: number): void {
    this.#from('waiting')
    this.#state = { tag: 'offered', since: now, until: now + forMs }
  }

  /** Its ttl counts from now. It never gets shorter, as a request with a shorter ttl may arrive late. */
  confirmed(ticket: Ticket, now: number): void {
    const before = this.#from('offered', 'held')
    const minHoldUntil = ticket.minHoldMs > 0 ? now + ticket.minHoldMs : 0
    const held: Held =
      before.tag === 'held' ? before : { tag: 'held', since: now, until: before.until, minHoldUntil }
    this.#ticket = ticket
    this.#state = { ...held, until: Math.max(held.until, now + ticket.ttlMs) }
  }

  /** Its ttl counts from now, and does not end before its minimum hold. */
  renewed(ttlMs: number, now: number): void {
    const held = this.#from('held')
    this.#state = { ...held, until: Math.max(held.until, now + ttlMs, held.minHoldUntil) }
  }

  /** From now on it ends with its ttl. */
  minHoldOver(): void {
    this.#state = { ...this.#from('held'), minHoldUntil: 0 }
  }

  /** The request that unbinds it from the lease of its minimum hold has failed, and is not tried again: that lease ends by itself. */
  rebindFailed(): void {
    this.#binding = { ...this.#binding, isForMinHold: false }
  }

  left(): void {
    const { since, minHoldUntil } = this.#from('held')
    this.#state = { tag: 'leaving', since, until: minHoldUntil }
  }

  /** `done` is the deletion of its key. */
  expired(done: Promise<void>): void {
    this.#from('waiting', 'offered', 'held', 'leaving')
    this.#state = { tag: 'ending', done }
  }

  forgotten(): void {
    this.#from('waiting', 'offered', 'held', 'leaving', 'ending')
    this.#state = { tag: 'forgotten' }
  }

  #from<Tag extends TicketState['tag']>(...tags: readonly Tag[]): Extract<TicketState, { tag: Tag }> {
    const state = this.#state
    assert(isIn(state, tags), `a ticket of etcd that is ${state.tag} was expected to be ${tags.join(' or ')}`)
    return state
  }
}

function isIn<Tag extends TicketState['tag']>(
  state: TicketState,
  tags: readonly Tag[],
): state is Extract<TicketState, { tag: Tag }> {
  return tags.some((tag) => tag === state.tag)
}

/** How long its key has to outlast its last sign of life. */
export function termMs({ ttlMs, lockDelayMs }: Ticket): number {
  return ttlMs + lockDelayMs
}
