import type { Granted, Store, Wake } from '../../src/contract/store.ts'
import type { StoreCall } from '../../src/testing/simulated-server.ts'
import type { Member } from './member.ts'

/** What was so when a message that is a lease reached the engine. */
type Circumstance =
  | 'in time'
  | 'again'
  /** Longer under way than its ttl. */
  | 'late'
  | 'after an eviction'
  /** The store has lost everything since it sent the message. */
  | 'after a flush'
  /** The store's clock has jumped since the store last answered about the ticket. */
  | 'after a clock jump'
  /** It arrived while the process was paused. */
  | 'in a frozen process'
  /** The process stood still for longer than the ttl after the message had arrived. */
  | 'after a standstill'

/**
 * What the engine made of the message in the same turn of the event loop. `asks`: the ticket waits on, and the message was a
 * hint. `gives up`: the wait ended without the lease. `ignored`: no call waited under this ticket.
 */
type Outcome = 'taken' | 'asks' | 'gives up' | 'ignored'

interface Sent extends Granted {
  readonly sentAt: number
  readonly flushes: number
  /** How often the store's clock had jumped when the store last answered about the ticket. */
  readonly jumps: number
  evicted: boolean
  heard: number
}

interface Hearing {
  readonly sent: Sent
  readonly circumstances: readonly Circumstance[]
  outcome: Outcome
  /** Whether the store was asked about the ticket in the same turn. A store in the same process answers at once. */
  asked: boolean
}

export interface GrantedMessagesOptions {
  readonly now: () => number
  readonly count: (what: string) => void
}

/** Follows every message that is a lease from the store to the engine, and counts what happened to it. Changes nothing. */
export class GrantedMessages {
  readonly #options: GrantedMessagesOptions
  readonly #tickets = new Map<
    string,
    { readonly key: string; readonly ttlMs: number; readonly jumps: number }
  >()
  readonly #sent = new Map<string, Sent>()
  /** The messages that the present turn of the event loop has brought. */
  #hearings: Hearing[] = []
  #onNext: ((key: string, id: string) => void)[] = []
  readonly #onHeard = new Map<Member, (() => void)[]>()
  #flushes = 0
  #jumps = 0

  constructor(options: GrantedMessagesOptions) {
    this.#options = options
  }

  /** Calls back once, in the turn in which the store sends the next message. */
  onNext(act: (key: string, id: string) => void): void {
    this.#onNext.push(act)
  }

  /** Calls back once, right after the process has heard its next message, and in the same turn. */
  onHeard(member: Member, act: () => void): void {
    this.#onHeard.set(member, [...(this.#onHeard.get(member) ?? []), act])
  }

  /** Follows what a new store sends. */
  follow(store: Store): void {
    void store.listen?.((wake) => {
      if (wake.tag === 'granted') this.#send(wake)
    })
  }

  /** Follows what the engine of a process hears. `arrivedAt`: when the message came to the process that acts now. */
  attend(member: Member, store: Store, arrivedAt: () => number): void {
    const listen = store.listen?.bind(store)
    store.listen = async (onWake) =>
      (await listen?.((wake) => {
        const isHeard = this.#hear(member, wake, arrivedAt())
        onWake(wake)
        if (!isHeard) return
        const acts = this.#onHeard.get(member) ?? []
        this.#onHeard.delete(member)
        for (const act of acts) act()
      })) ?? (() => {})
    const { acquired, timeout, withdrawn } = member.engine.events
    acquired.on(({ id }: { readonly id: string }) => this.#ends(id, 'taken'))
    for (const end of [timeout, withdrawn])
      end.on(({ id }: { readonly id: string }) => this.#ends(id, 'gives up'))
  }

  called(call: StoreCall): void {
    const tickets = call.verb === 'acquire' ? [call.ticket] : call.verb === 'renew' ? call.tickets : []
    for (const { id, key, ttlMs } of tickets) {
      this.#tickets.set(id, { key, ttlMs, jumps: this.#jumps })
      for (const hearing of this.#hearings) hearing.asked ||= hearing.sent.id === id
    }
  }

  evicted(ids: readonly string[]): void {
    for (const sent of this.#sent.values()) sent.evicted ||= ids.includes(sent.id)
  }

  dataLost(): void {
    this.#flushes += 1
  }

  clockJumped(): void {
    this.#jumps += 1
  }

  /** The present turn of the event loop is over. */
  turnOver(): void {
    if (this.#hearings.length === 0) return
    for (const { circumstances, outcome } of this.#hearings)
      for (const circumstance of circumstances) this.#options.count(`granted ${circumstance}, ${outcome}`)
    this.#hearings = []
  }

  /** Nothing is under way any more. */
  countLost(members: readonly Member[]): void {
    for (const { id, heard } of this.#sent.values()) {
      const owner = members.find((member) => isOf(member, id))
      if (heard === 0 && owner?.active === true) this.#options.count('granted lost')
    }
  }

  #send(granted: Granted): void {
    const ticket = this.#tickets.get(granted.id)
    const jumps = ticket?.jumps ?? this.#jumps
    const sent = { ...granted, sentAt: this.#options.now(), flushes: this.#flushes, jumps }
    this.#sent.set(nameOf(granted), { ...sent, evicted: false, heard: 0 })
    const onNext = this.#onNext
    this.#onNext = []
    for (const act of onNext) act(ticket?.key ?? '', granted.id)
  }

  /** Whether the message is a lease for this process. Every process hears every message. */
  #hear(member: Member, wake: Wake, arrivedAt: number): boolean {
    if (wake.tag !== 'granted' || !isOf(member, wake.id)) return false
    const sent = this.#sent.get(nameOf(wake))
    if (sent === undefined) return false
    sent.heard += 1
    const waits = member.engine.waiting.some(({ ticket }) => ticket.id === sent.id)
    const circumstances = this.#circumstancesOf(sent, arrivedAt)
    this.#hearings.push({ sent, circumstances, outcome: waits ? 'asks' : 'ignored', asked: false })
    return true
  }

  #circumstancesOf(sent: Sent, arrivedAt: number): readonly Circumstance[] {
    const now = this.#options.now()
    const ttlMs = this.#tickets.get(sent.id)?.ttlMs ?? Number.POSITIVE_INFINITY
    const found: Circumstance[] = []
    if (sent.heard > 1) found.push('again')
    if (arrivedAt - sent.sentAt > ttlMs) found.push('late')
    if (sent.evicted) found.push('after an eviction')
    if (this.#flushes > sent.flushes) found.push('after a flush')
    if (this.#jumps > sent.jumps) found.push('after a clock jump')
    if (now > arrivedAt) found.push('in a frozen process')
    if (now - arrivedAt > ttlMs) found.push('after a standstill')
    return found.length === 0 ? ['in time'] : found
  }

  #ends(id: string, outcome: Outcome): void {
    for (const hearing of this.#hearings)
      if (hearing.sent.id === id && hearing.outcome === 'asks' && !hearing.asked) hearing.outcome = outcome
  }
}

function isOf({ name }: Member, id: string): boolean {
  return id.startsWith(`${name}-`)
}

function nameOf({ id, fence }: Granted): string {
  return `${id} ${fence}`
}
