import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { Clock, Timer } from '../contract/clock.ts'
import type { Answer, RenewAnswer, Store, Ticket } from '../contract/store.ts'
import { Backlog, type StepwiseWork } from './backlog.ts'
import { Delivery, type Put, type RenewalOutcome } from './delivery.ts'
import { type Events, tellStoreError } from './events.ts'
import { type Exchange, now } from './instant.ts'
import { isLater } from './later.ts'
import type { Renewable } from './renewable.ts'
import { invalidAnswer } from './ticket-errors.ts'
import { TimerWheel } from './timer-wheel.ts'

/**
 * Does everything of one store that has to happen at a certain time. Its single timer sleeps until the first due time.
 * Then batched requests ask about all tickets that are due. It renews leases, keeps waiters remembered and repeats
 * releases.
 *
 * A round that takes longer than {@link SLICE_MS} is continued by the next timer, so that the event loop can serve
 * others in between. The same holds for answers that arrive together, see {@link Backlog}.
 *
 * The timer is not stopped when the last member leaves. It fires once more, finds nothing, and is not started again. So
 * a lock that is taken and released in a loop starts one timer per ttl/3, and not one per lock.
 */
export class RenewalLoop {
  readonly #store: Store
  readonly #clock: Clock
  readonly #events: Events
  readonly #wheel: TimerWheel<Renewable> = new TimerWheel()
  readonly #backlog: Backlog
  readonly #putBack: Put = (one, at) => this.#put(one, at)
  #timer: Timer | undefined
  #wakesAt = Number.POSITIVE_INFINITY
  #willAsk = false
  /** How far the wall clock was ahead of the monotonic clock in the last round. If that grew, the machine slept. */
  #wallLead: number
  #noticesSleep = false
  #awaited = 0
  /** How many tickets the next request may ask about. */
  #most = FIRST_BATCH

  /** By a promise, which costs a tenth of queueMicrotask in Node.js. */
  readonly #askSoon = (): void => {
    void SOON.then(this.#askAtOnce)
  }
  readonly #askAtOnce = (): void => {
    this.#willAsk = false
    const from = now(this.#clock, this.#store)
    this.#inSlice(from, () => this.#wheel.takeUrgent(this.#most))
    if (this.#wheel.isBehind) this.#wakeBy(from.monotonicMs)
  }

  constructor(store: Store, clock: Clock, events: Events) {
    this.#store = store
    this.#clock = clock
    this.#events = events
    this.#backlog = new Backlog(clock)
    const { wallMs, monotonicMs } = now(clock, store)
    this.#wallLead = wallMs - monotonicMs
  }

  get size(): number {
    return this.#wheel.size
  }

  /** Adds it, or takes notice of its new `dueAt`. `now`: a recent look at the monotonic clock, if the caller had one. */
  schedule(one: Renewable, now: number = this.#clock.monotonicMs()): void {
    if (one.awaited && one.bucket === undefined) this.#await(1)
    this.#put(one, now)
  }

  remove(one: Renewable): void {
    if (one.bucket === undefined) return
    this.#wheel.remove(one)
    if (one.awaited) this.#await(-1)
  }

  /** Asks about it at the end of this tick, in one request with all others of this tick. Ignored if it was removed. */
  askNow(one: Renewable): void {
    if (one.bucket === undefined) return
    this.#wheel.putFirst(one)
    if (this.#willAsk) return
    this.#willAsk = true
    outsideOfCallers(this.#askSoon)
  }

  /** Does the work in this turn of the event loop as far as that fits, and the rest in the next ones. */
  spread(work: StepwiseWork, at: number = this.#clock.monotonicMs()): void {
    this.#backlog.begin(work, at)
    if (!this.#backlog.isEmpty) this.#wakeBy(at)
  }

  /** Delivers all answers that have arrived. Called before a lease ends at its deadline, because one may confirm it. */
  catchUp(): void {
    this.#backlog.finish()
  }

  /** From now on a round every second, because a signal is listened to: after a suspend it must abort soon. */
  noticeSleep(): void {
    this.#noticesSleep = true
    this.#wakeBy(this.#clock.monotonicMs() + SLEEP_CHECK_MS)
  }

  /** All members that fulfil `which`. A copy, because what is done with one may remove others. */
  list(which: (one: Renewable) => boolean): Renewable[] {
    const found: Renewable[] = []
    for (const one of this.#wheel) if (which(one)) found.push(one)
    return found
  }

  /** For good. What is still scheduled runs out in the store. */
  stop(): void {
    this.#timer?.stop()
    this.#timer = undefined
    // No due time is earlier, so no timer is started any more.
    this.#wakesAt = Number.NEGATIVE_INFINITY
  }

  #put(one: Renewable, now: number): void {
    const at = this.#wheel.put(one, now)
    if (at < this.#wakesAt) this.#wakeBy(at)
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
    const from = now(this.#clock, this.#store)
    this.#wheel.advance(from.monotonicMs, { every: this.#hasSlept(from) })
    this.#inSlice(from, (at) => {
      const urgent = this.#wheel.takeUrgent(this.#most)
      return urgent.length > 0 ? urgent : this.#wheel.takeDue(this.#most, at.monotonicMs)
    })
    // Last: a lease whose deadline has come does not wait for answers to others.
    if (!this.#backlog.isEmpty) this.#backlog.goOn()
    this.#rest(from)
  }

  #rest(at: Instant): void {
    if (this.#wheel.size === 0) this.#noticesSleep = false
    else if (this.#noticesSleep) this.#wakeBy(at.monotonicMs + SLEEP_CHECK_MS)
    const next = this.#wheel.isBehind || !this.#backlog.isEmpty ? at.monotonicMs : this.#wheel.nextAt()
    if (next !== Number.POSITIVE_INFINITY) this.#wakeBy(next)
  }

  #hasSlept(at: Instant): boolean {
    const before = this.#wallLead
    this.#wallLead = at.wallMs - at.monotonicMs
    return this.#wallLead - before > SLEPT_MS
  }

  /** Looks after batch after batch until none is left, or until the event loop was held for long enough. */
  #inSlice(from: Instant, take: (at: Instant) => Renewable[]): void {
    let at = from
    do {
      const batch = take(at)
      if (batch.length === 0) return
      this.#lookAfter(batch, at)
      const before = at.monotonicMs
      at = now(this.#clock, this.#store)
      this.#fitBatch(at.monotonicMs - before)
    } while (at.monotonicMs - from.monotonicMs < SLICE_MS)
  }

  /** Cold code takes ten times as long for a ticket as warm code, and a full batch of it would hold the event loop. */
  #fitBatch(tookMs: number): void {
    if (tookMs > SLICE_MS / 2) this.#most = Math.max(FIRST_BATCH, this.#most >> 1)
    else this.#most = Math.min(LARGEST_BATCH, this.#most * 2)
  }

  /** `at`: a moment before `due()` is called for any of them, so it is before the request. */
  #lookAfter(taken: readonly Renewable[], at: Instant): void {
    const batch: Renewable[] = []
    const tickets: Ticket[] = []
    for (const one of taken) {
      if (one.bucket === undefined || !one.due(at)) continue
      batch.push(one)
      tickets.push(one.renewRequest ?? one.ticket)
    }
    if (batch.length > 0) this.#ask(batch, tickets, at)
    // An answer in the same tick has put it back already.
    for (const one of taken) if (this.#wheel.isTaken(one)) this.#put(one, at.monotonicMs)
  }

  #ask(batch: readonly Renewable[], tickets: readonly Ticket[], askedAt: Instant): void {
    const asked = { batch, tickets }
    let answers: Answer<readonly RenewAnswer[]>
    try {
      answers = this.#store.renew(tickets, askedAt.monotonicMs)
    } catch (error) {
      return this.#finish(this.#failed(asked, error, { askedAt, answeredAt: now(this.#clock, this.#store) }))
    }
    // At once: a round takes no more tickets than fit into it.
    if (!isLater(answers))
      return this.#finish(this.#answered(asked, answers, { askedAt, answeredAt: askedAt }))
    const when = (): Exchange => ({ askedAt, answeredAt: now(this.#clock, this.#store) })
    Promise.resolve(answers).then(
      (late) => this.#deliver(this.#answered(asked, late, when())),
      (error: unknown) => this.#deliver(this.#failed(asked, error, when())),
    )
  }

  #answered(asked: AskedBatch, answers: readonly RenewAnswer[], when: Exchange): RenewalOutcome {
    if (!Array.isArray(answers)) return this.#failed(asked, invalidAnswer(), when)
    return { batch: asked.batch, tickets: asked.tickets, answers, when }
  }

  #failed(asked: AskedBatch, error: unknown, when: Exchange): RenewalOutcome {
    const { batch } = asked
    const { key, id } = (batch.length === 1 ? batch[0]?.ticket : undefined) ?? {}
    tellStoreError(this.#events, { verb: 'renew', error, key, id })
    return { ...asked, answers: undefined, error, when }
  }

  #deliver(outcome: RenewalOutcome): void {
    this.spread(new Delivery(this.#putBack, outcome), outcome.when.answeredAt.monotonicMs)
  }

  #finish(outcome: RenewalOutcome): void {
    this.#backlog.do(new Delivery(this.#putBack, outcome))
  }
}

type AskedBatch = Pick<RenewalOutcome, 'batch' | 'tickets'>

/** How long a round may hold the event loop. Beyond it no new batch is begun; a batch takes about half a millisecond. */
const SLICE_MS = 3
const FIRST_BATCH = 64
/** A script that renews 500 tickets keeps a Redis server busy for about a millisecond. */
const LARGEST_BATCH = 500
const SOON: Promise<void> = Promise.resolve()
const SLEEP_CHECK_MS = 1000
/** Clocks are slewed by less between two rounds; a suspend that matters is longer. */
const SLEPT_MS = 200
