import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { Clock, Timer } from '../contract/clock.ts'
import type { RenewAnswer, Store, Ticket } from '../contract/store.ts'
import { type Events, tellStoreError } from './events.ts'
import { type Exchange, now } from './instant.ts'
import { isLater } from './later.ts'

/** Something that has to be looked at now and then: a lease, a wait, a give-back. */
export interface Kept {
  /** When to look at it next, on the monotonic clock. `Infinity`: only when hurried. */
  dueAt: number
  /** How much earlier it may be looked at, if somebody else is due anyway. */
  readonly slackMs: number
  /** It is due. True: ask the store about its ticket, together with all others that are due. */
  due(at: Instant): boolean
  readonly ticket: Ticket
  /** What to ask, where it is not the ticket as it is. */
  readonly question?: Ticket
  /**
   * A caller awaits it, so the process has to stay. Work under a lease keeps itself alive. Counted as it joins and leaves,
   * so it may change only in between.
   */
  readonly awaited: boolean
  /** What the store said of the ticket as it was asked about. */
  answered(answer: RenewAnswer, asked: Ticket, when: Exchange): void
  /** No answer: it may or may not have happened. */
  unanswered(error: unknown): void
  /**
   * For the keeper alone: whether it is kept, and its neighbours in the list. A list in the things themselves, because
   * joining and leaving is what every uncontended lock pays for.
   */
  kept: boolean
  previous: Kept | undefined
  next: Kept | undefined
}

/**
 * Looks after everything of one store that has to happen at a time: one timer, which sleeps until the first of all due
 * times, and one batched request for all tickets that are due then – holders to be renewed, and waiters to be remembered.
 *
 * The timer is not stopped when its last client leaves: it fires once more, finds nobody, and rests. So a lock that is
 * taken and released in a loop starts one timer per ttl/3 and not one per lock.
 */
export class Keeper {
  readonly #store: Store
  readonly #clock: Clock
  readonly #events: Events
  #first: Kept | undefined
  #last: Kept | undefined
  #timer: Timer | undefined
  #wakesAt = Number.POSITIVE_INFINITY
  #hurried: Kept[] = []
  /** The difference of the two clocks at the last round: if it grew, the machine slept. */
  #wallLead: number
  #watched = false
  #awaited = 0

  /** By a promise, which costs a tenth of queueMicrotask in Node.js. */
  readonly #flushSoon = (): void => {
    void SOON.then(this.#flush)
  }
  readonly #flush = (): void => {
    // Two wakes for one ticket in one tick are one question.
    const hurried = this.#hurried.length > 1 ? [...new Set(this.#hurried)] : this.#hurried
    this.#hurried = []
    this.#lookAfter(hurried, now(this.#clock, this.#store))
    for (const kept of hurried) if (kept.kept) this.#wakeBy(kept.dueAt)
  }

  constructor(store: Store, clock: Clock, events: Events) {
    this.#store = store
    this.#clock = clock
    this.#events = events
    const { wallMs, monotonicMs } = now(clock, store)
    this.#wallLead = wallMs - monotonicMs
  }

  keep(kept: Kept): void {
    if (!kept.kept) {
      kept.kept = true
      kept.previous = this.#last
      if (this.#last === undefined) this.#first = kept
      else this.#last.next = kept
      this.#last = kept
      if (kept.awaited) this.#await(1)
    }
    this.#wakeBy(kept.dueAt)
  }

  drop(kept: Kept): void {
    if (!kept.kept) return
    const { previous, next } = kept
    kept.kept = false
    kept.previous = undefined
    kept.next = undefined
    if (previous === undefined) this.#first = next
    else previous.next = next
    if (next === undefined) this.#last = previous
    else next.previous = previous
    if (kept.awaited) this.#await(-1)
  }

  /** Asks about it in this very tick, in one request with all others that are hurried in it. */
  hurry(kept: Kept): void {
    if (!kept.kept) return
    this.#hurried.push(kept)
    if (this.#hurried.length === 1) outsideOfCallers(this.#flushSoon)
  }

  /** Somebody listens to a signal: notice a suspended machine within a second of its return. */
  watch(): void {
    this.#watched = true
    this.#wakeBy(this.#clock.monotonicMs() + WATCH_MS)
  }

  /** Everything that is kept at this moment and fulfils `which`. A copy: looking after one may make others leave. */
  list(which: (kept: Kept) => boolean): Kept[] {
    const found: Kept[] = []
    for (let kept = this.#first; kept !== undefined; kept = kept.next) if (which(kept)) found.push(kept)
    return found
  }

  /** The first thing that is kept at this moment and fulfils `which`. */
  find(which: (kept: Kept) => boolean): Kept | undefined {
    let kept = this.#first
    while (kept !== undefined && !which(kept)) kept = kept.next
    return kept
  }

  /** For good: whatever is still kept is left to run out in the store. */
  stop(): void {
    this.#timer?.stop()
    this.#timer = undefined
    // No due time is earlier, so no timer is started any more.
    this.#wakesAt = Number.NEGATIVE_INFINITY
  }

  #wakeBy(at: number): void {
    if (at >= this.#wakesAt) return
    this.#timer?.stop()
    this.#wakesAt = at
    const delay = Math.max(0, Math.ceil(at - this.#clock.monotonicMs()))
    this.#timer = this.#clock.startTimer(delay, () => this.#round())
    if (this.#awaited > 0) this.#timer.keepAlive(true)
  }

  #await(more: 1 | -1): void {
    const before = this.#awaited
    this.#awaited += more
    if (before === 0 || this.#awaited === 0) this.#timer?.keepAlive(this.#awaited > 0)
  }

  #round(): void {
    this.#timer = undefined
    this.#wakesAt = Number.POSITIVE_INFINITY
    const at = now(this.#clock, this.#store)
    const slept = this.#hasSlept(at)
    const due: Kept[] = []
    let next = Number.POSITIVE_INFINITY
    for (let kept = this.#first; kept !== undefined; kept = kept.next) {
      if (slept || kept.dueAt - kept.slackMs <= at.monotonicMs) due.push(kept)
      else next = Math.min(next, kept.dueAt)
    }
    this.#lookAfter(due, at)
    for (const kept of due) if (kept.kept) next = Math.min(next, kept.dueAt)
    this.#rest(at, next)
  }

  #rest(at: Instant, next: number): void {
    if (this.#first === undefined) this.#watched = false
    else if (this.#watched) this.#wakeBy(at.monotonicMs + WATCH_MS)
    if (next !== Number.POSITIVE_INFINITY) this.#wakeBy(next)
  }

  #hasSlept(at: Instant): boolean {
    const before = this.#wallLead
    this.#wallLead = at.wallMs - at.monotonicMs
    return this.#wallLead - before > SLEPT_MS
  }

  /** `at`: before the things were looked at, so before any of the requests. */
  #lookAfter(due: readonly Kept[], at: Instant): void {
    let batch: Kept[] = []
    let tickets: Ticket[] = []
    for (const kept of due) {
      if (!kept.kept || !kept.due(at)) continue
      batch.push(kept)
      tickets.push(kept.question ?? kept.ticket)
      if (batch.length < BATCH) continue
      this.#ask(batch, tickets, at)
      batch = []
      tickets = []
    }
    if (batch.length > 0) this.#ask(batch, tickets, at)
  }

  #ask(batch: readonly Kept[], tickets: readonly Ticket[], askedAt: Instant): void {
    try {
      const answers = this.#store.renew(tickets, askedAt.monotonicMs)
      if (isLater(answers)) {
        Promise.resolve(answers)
          .then((late) =>
            this.#deliver(batch, tickets, late, { askedAt, answeredAt: now(this.#clock, this.#store) }),
          )
          .catch((error: unknown) => this.#fail(batch, error))
      } else this.#deliver(batch, tickets, answers, { askedAt, answeredAt: askedAt })
    } catch (error) {
      this.#fail(batch, error)
    }
  }

  #deliver(
    batch: readonly Kept[],
    tickets: readonly Ticket[],
    answers: readonly RenewAnswer[],
    when: Exchange,
  ): void {
    let index = -1
    for (const kept of batch) {
      index += 1
      if (!kept.kept) continue
      const answer = answers[index]
      // Left empty: of this one the store could not learn anything.
      if (answer === undefined) kept.unanswered(undefined)
      else kept.answered(answer, tickets[index] ?? kept.ticket, when)
      if (kept.kept) this.#wakeBy(kept.dueAt)
    }
  }

  #fail(batch: readonly Kept[], error: unknown): void {
    const { key, id } = (batch.length === 1 ? batch[0]?.ticket : undefined) ?? {}
    tellStoreError(this.#events, { verb: 'renew', error, key, id })
    for (const kept of batch) {
      if (!kept.kept) continue
      kept.unanswered(error)
      if (kept.kept) this.#wakeBy(kept.dueAt)
    }
  }
}

/** A script that renews 500 tickets keeps a Redis server busy for about a millisecond. */
const BATCH = 500
const SOON: Promise<void> = Promise.resolve()
const WATCH_MS = 1000
/** Clocks are slewed by less between two rounds; a suspend that matters is longer. */
const SLEPT_MS = 200
