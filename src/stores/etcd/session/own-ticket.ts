import { assert } from '../../../base/assert.ts'
import type { Ticket } from '../../../contract/store.ts'
import type { EtcdLease } from './leases.ts'

/**
 * The state of a ticket of this process, as far as the process knows. The keys in etcd show only the order in which the tickets
 * came. Only its own process knows whether a ticket was offered the key, whether it has confirmed, and until when it holds.
 *
 * A new ticket is **waiting**, even if the key is free. When its turn comes it is **offered** the key. When its caller asks
 * again, the ticket is confirmed and **held**, and each renewal counts its ttl anew. A holder that is released before its minimum
 * hold is over is **leaving**: nobody has the lease any more, and the key stays taken. Each of these four states ends at its own
 * time. Then the ticket is **ending**: the process deletes its key. Any of them may be **forgotten**, which is final.
 *
 *     waiting ──offered──▶ offered ──confirmed──▶ held ──left──▶ leaving
 *        └───────────────────┴───── expired ──────────┴──────────────┴─────▶ ending ──forgotten──▶ forgotten
 *
 * | event       | from                            | to        | when                                                        |
 * |-------------|---------------------------------|-----------|-------------------------------------------------------------|
 * | heard       | waiting                         | waiting   | its caller asked: it is remembered anew                     |
 * | waits       | waiting                         | waiting   | its caller was told to go on waiting                        |
 * | offered     | waiting                         | offered   | nobody is in front of it, or it may hold beside all who are |
 * | confirmed   | offered, held                   | held      | its caller asked: the ttl counts from now                   |
 * | renewed     | held                            | held      | its caller asked or was answered: the ttl counts from now   |
 * | minHoldOver | held                            | held      | its minimum hold is over                                    |
 * | left        | held                            | leaving   | it was released before its minimum hold was over            |
 * | expired     | waiting, offered, held, leaving | ending    | its time is over: the deletion of its key begins            |
 * | forgotten   | any but forgotten               | forgotten | its key is gone, or belongs to another process              |
 *
 * An event in any other state is a mistake of the program, and throws. All instants are of the monotonic clock.
 */
export type TicketState =
  /** `heardAt`: when its caller asked last. Its place in the queue is remembered until `rememberedUntil`. */
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
  /** The end of its minimum hold. 0 if it has none, or once that is over. */
  readonly minHoldUntil: number
}

/** To which lease of etcd the key is bound. This changes beside the state. */
export interface Binding {
  /** The revision of the key. An answer about an older one says nothing any more. */
  readonly revision: number
  /** The lease of waiters until it is the ticket's turn, and then one that lasts for its ttl. */
  readonly lease: EtcdLease
  /** Whether that lease belongs to this key alone and lasts for the minimum hold, whatever becomes of this process. */
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
  /** A request that writes its key got no answer, and may be carried out later than every request from now on. */
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
  /** How many requests about it are under way. Their answers tell its caller the news, so it needs no wake. */
  #openRequests = 0
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

  /** With the terms of the last request. */
  get ticket(): Ticket {
    return this.#ticket
  }

  get state(): TicketState {
    return this.#state
  }

  get isForgotten(): boolean {
    return this.#state.tag === 'forgotten'
  }

  get binding(): Binding {
    return this.#binding
  }

  get isInDoubt(): boolean {
    return this.#isInDoubt
  }

  get hasOpenRequest(): boolean {
    return this.#openRequests > 0
  }

  /** A request that writes its key got no answer, and may be carried out later than every request from now on. */
  putInDoubt(): void {
    this.#isInDoubt = true
  }

  /** Answers a request about it by `work`. Until then it is not woken. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#openRequests += 1
    try {
      return await work()
    } finally {
      this.#openRequests -= 1
    }
  }

  /** Whether this is the first look at its room since its key was written. Then the room is at least as new as that write. */
  isFirstRead(): boolean {
    const isFirst = this.#readAt !== this.#binding.revision
    this.#readAt = this.#binding.revision
    return isFirst
  }

  /** Its key was written or read with this binding. False if that is older than the known one, and ignored. */
  bound(binding: Binding): boolean {
    if (binding.revision < this.#binding.revision) return false
    this.#binding = binding
    return true
  }

  /** A waiter's caller asks: the ticket is remembered anew. */
  heard(ticket: Ticket, now: number): void {
    this.#from('waiting')
    this.#state = { tag: 'waiting', heardAt: now, rememberedUntil: now + ticket.patienceMs }
  }

  /** Its caller was told that it goes on waiting, on these terms. */
  waits(ticket: Ticket): void {
    this.#from('waiting')
    this.#ticket = ticket
  }

  offered(now: number, forMs: number): void {
    this.#from('waiting')
    this.#state = { tag: 'offered', since: now, until: now + forMs }
  }

  /** Its ttl counts from now. Its end never moves back, because a request with a shorter ttl may arrive late. */
  confirmed(ticket: Ticket, now: number): void {
    const before = this.#from('offered', 'held')
    const minHoldUntil = ticket.minHoldMs > 0 ? now + ticket.minHoldMs : 0
    const held: Held =
      before.tag === 'held' ? before : { tag: 'held', since: now, until: before.until, minHoldUntil }
    this.#ticket = ticket
    this.#state = { ...held, until: Math.max(held.until, now + ticket.ttlMs) }
  }

  /** Its ttl counts from now, and ends no sooner than its minimum hold. */
  renewed(ttlMs: number, now: number): void {
    const held = this.#from('held')
    this.#state = { ...held, until: Math.max(held.until, now + ttlMs, held.minHoldUntil) }
  }

  /** From now on only its ttl ends it. */
  minHoldOver(): void {
    this.#state = { ...this.#from('held'), minHoldUntil: 0 }
  }

  /** The key could not be bound to another lease after the minimum hold. This is not tried again: the lease ends by itself. */
  rebindFailed(): void {
    this.#binding = { ...this.#binding, isForMinHold: false }
  }

  left(): void {
    const { since, minHoldUntil } = this.#from('held')
    this.#state = { tag: 'leaving', since, until: minHoldUntil }
  }

  /** `done` resolves when its key is deleted. */
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

/** How long etcd has to keep the key of a holder that it does not hear of any more. */
export function termMs({ ttlMs, lockDelayMs }: Ticket): number {
  return ttlMs + lockDelayMs
}
