import { checkOptions, expected, parseFunction, parseSignal } from '../base/arguments.ts'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import { type Duration, HOLD_RANGE, parseDuration } from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { type Owner, parseOwner } from '../base/owner.ts'
import { reportOf } from '../base/thrown.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { LockEvents } from '../engine/lock-events.ts'
import { closedDuring } from '../engine/ticket-errors.ts'
import { isHoldfastError, StoreError } from '../errors.ts'
import { hold, type LocksContext, type Work } from './hold.ts'
import { roomOf } from './inspected.ts'
import { currentLeader, type Leader, LeaderWatch } from './leader-watch.ts'
import { type Leadership, LeaderTerm, markOf } from './leadership.ts'
import { checkValue } from './membership.ts'
import {
  ADMINISTRATION_MS,
  checkCallback,
  checkReason,
  EXCLUSIVE,
  type HoldOptions,
  type HoldSettings,
  parseSettings,
  TAKES,
} from './options.ts'
import {
  campaignOf,
  contendersFor,
  contendersIn,
  ownerOfCampaign,
  parsePreference,
  sendBack,
  UNSAID,
} from './succession.ts'

/** How to campaign, and how to lead. */
export interface CampaignOptions extends Omit<HoldOptions, 'renew' | 'maxHold' | 'storeTimeout'> {
  /** What the others see of the leader: an address, a name. At most 1,000 characters. Default: nothing. */
  readonly value?: string | undefined
  /**
   * How long the work may take to settle after the leader was asked to step down. After that the lease is not renewed, and
   * another candidate leads once it has expired. Default: the ttl.
   */
  readonly grace?: Duration | undefined
  /**
   * The candidate of the highest priority leads. The leader asks every two seconds who waits, and gives way to a better candidate as if
   * it had been asked to step down. When its term ends for another reason, the best of those that wait is the next leader. Among equals
   * the queue decides. A whole number from -1,000,000 to 1,000,000. Default: this campaign counts as 0 for the others, and gives way to
   * nobody.
   */
  readonly priority?: number | undefined
  /**
   * How long a candidate of a higher priority has to wait before the leader gives way to it. So a process that comes and goes does not
   * move the leadership. `Infinity`: a better candidate waits until the term ends. Needs a `priority`. Default: 5 s.
   */
  readonly yieldAfter?: Duration | undefined
  /**
   * Called when the store refuses a request of the campaign (`store-refused`). The campaign asks again after 1 to 30 s.
   * Without `onError` a refusal ends the campaign.
   */
  readonly onError?: ((error: unknown) => void) | undefined
}

/** A process that waits to be the leader, as every process can see it. */
export interface Candidate {
  /** The id of its campaign, for {@link Election.handTo}. It stays the same when the candidate joins the queue again. */
  readonly id: string
  /** The `value` that it gave to `campaign`. */
  readonly value: string | undefined
  /** The `priority` that it gave to `campaign`, or 0. */
  readonly priority: number
  /**
   * Whether its last term ended because somebody wanted that: `resign`, `handTo`, `requestStepDown`, an eviction. Then no leader gives
   * way to it, and each of the others is better, until it has led again.
   */
  readonly hasSteppedDown: boolean
  /** Host, process id and label, for people. */
  readonly owner: Owner
  /** How long it has waited. */
  readonly waitedMs: number
}

/**
 * One leader at a time among the candidates for a key, in order of arrival, or the one of the highest `priority`. Made by `locks.election(key)`.
 *
 * ```ts
 * import { connect } from 'holdfast'
 *
 * const locks = await connect('memory:')
 * const election = locks.election('scheduler')
 * const result = await election.campaign(async ({ signal, fence }) => {
 *   // Leads here. Stop when the signal aborts; what returns ends the campaign.
 *   return `led under ${fence}, ${signal.aborted ? 'asked to go' : 'done'}`
 * })
 * console.log(result)
 * await locks.close()
 * ```
 */
export class Election {
  /** The key that the leader holds. */
  readonly key: string
  readonly #context: LocksContext
  readonly #defaults: HoldSettings
  readonly #leading = new Set<LeaderTerm>()

  constructor(context: LocksContext, key: string, defaults: HoldSettings) {
    markOf(key)
    this.#context = context
    this.key = key
    this.#defaults = defaults
  }

  /**
   * Waits without a time limit to be elected, and runs `work` while it leads. If the lease is lost or the leader is asked to
   * step down, `signal` aborts. Once the work has settled, the campaign joins the queue again at its end. One campaign
   * never runs `work` twice at the same time.
   *
   * @returns what `work` returns, if it returns before its signal aborts. The key is free by then.
   * @throws what `work` throws, unless it only rethrows the reason of its signal or an `AbortError` after an abort; the
   * reason of `options.signal`, once the work has settled; {@link StoreError} `store-refused`, without `onError`;
   * {@link ClosedError}.
   */
  campaign<T>(work: Work<Leadership, T>): Promise<T>
  campaign<T>(options: CampaignOptions | undefined, work: Work<Leadership, T>): Promise<T>
  async campaign<T>(...rest: WorkArguments<CampaignOptions, Work<Leadership, T>>): Promise<T> {
    const [options = {}, work] = splitWork(rest)
    checkCallback(work)
    const { settings, stopMs, value, preference, onError } = this.#parse(options)
    const { signals } = this.#context.engine
    const campaign = { candidate: this.#context.nextId(), value, priority: preference?.priority }
    for (let hasSteppedDown = false; ; ) {
      const owner = ownerOfCampaign(this.#context.owner, { ...campaign, hasSteppedDown })
      const context = { ...this.#context, owner }
      const lease = await elected(context, this.key, settings, onError)
      const term = new LeaderTerm({ context, lease, settings, stopMs, preference })
      const ending = { abort: () => term.stepDown('its campaign was ended.') }
      if (settings.signal !== undefined) signals.add(settings.signal, ending)
      // The caller's signal may abort in the same tick as the election.
      if (settings.signal?.aborted === true) ending.abort()
      this.#leading.add(term)
      const tellEnd = tellTerm(context, lease, settings)
      const end = await term.run(work)
      hasSteppedDown = term.wasAskedToGo
      this.#leading.delete(term)
      tellEnd(end.tag === 'over' ? (lease.state === 'lost' ? 'lost' : 'step-down') : end.tag)
      if (settings.signal !== undefined) signals.remove(settings.signal, ending)
      if (end.tag === 'failed') throw end.error
      if (end.tag === 'done') return end.value
      settings.signal?.throwIfAborted()
    }
  }

  /**
   * Whether a campaign of this object leads at this moment, by the clocks and without a request. It is advice, as each lease is: for a
   * metric or a health check. What must not happen twice checks {@link Leadership.assertHeld}, and sends the fence along.
   */
  isLeader(): boolean {
    return Array.from(this.#leading).some(({ isHeld }) => isHeld)
  }

  /**
   * Whether the work of each campaign of this object settles when its term is over. `false`: another process may lead, and the work has
   * gone on for longer than `tolerance` since then (default: 30 s). Such work hangs, and a restart of the process is what helps: this is
   * a liveness check, as the health check of client-go's leader election is one. It makes no request. A process that leads, waits, or
   * has no campaign is healthy, and so is one whose store does not answer.
   *
   * @throws {InvalidArgumentError} when `tolerance` is no duration from 0 to 24 days.
   */
  isHealthy(options: { readonly tolerance?: Duration | undefined } = {}): boolean {
    checkOptions(options, ['tolerance'])
    const toleranceMs = parseDuration('tolerance', options.tolerance ?? '30s', HOLD_RANGE)
    return Array.from(this.#leading).every(({ overrunMs }) => overrunMs <= toleranceMs)
  }

  /**
   * Ends the current terms of this object's campaigns. Their signals abort, and their work settles. Then the key goes to the
   * next candidate, and they campaign again. Resolves when each of these terms is over: its key was released, or its lease
   * was lost. A call from inside the work does not wait for that work's own term.
   */
  async resign(): Promise<void> {
    await Promise.all(Array.from(this.#leading, resigned))
  }

  /**
   * Asks the leader to step down, in whichever process it runs. Its signal aborts, its work settles, and the next candidate
   * leads. Resolves when the store has accepted the request. If the store pushes wakes, the leader is told at once.
   *
   * @returns whether there was a leader. It was asked, or its term has ended meanwhile.
   * @throws {StoreError} `store-unavailable` when the store does not answer, or a leader could not be told within 10 s; {@link ClosedError}.
   */
  async requestStepDown(options: { readonly reason: string }): Promise<boolean> {
    checkOptions(options, ['reason'], 'reason')
    const reason: unknown = options.reason
    checkReason(reason)
    const { engine } = this.#context
    const until = engine.clock.monotonicMs() + ADMINISTRATION_MS
    // The lease of the leader, once it could not be asked.
    let untold: string | undefined
    for (let asked = 1; ; asked += 1) {
      const holders = (await roomOf(engine, this.key))?.holders ?? []
      // A candidate to which the key is offered leads in a moment.
      const chosen = holders.find((holder) => holder.state !== 'leaving' && campaignOf(holder) !== undefined)
      // Its term has ended meanwhile. The next leader must not be asked in its place.
      if (untold !== undefined && chosen?.id !== untold) return true
      if (chosen === undefined) return false
      const leader = chosen.state === 'held' ? campaignOf(chosen) : undefined
      if (leader !== undefined && (await this.#evictMarks(leader, reason))) return true
      if (leader !== undefined) untold = chosen.id
      // A leader that was just elected has no mark yet. It takes it in a moment, or in seconds if its first request is lost.
      if (engine.clock.monotonicMs() >= until) throw notAsked(this.key)
      await paused(engine.clock, engine.backoffMs(asked))
    }
  }

  async #evictMarks(campaign: string, reason: string): Promise<boolean> {
    const { engine } = this.#context
    const key = markOf(this.key)
    const mark = await roomOf(engine, key)
    // Observers are in this room, too, and must stay.
    const marks = [...(mark?.holders ?? []), ...(mark?.queue ?? [])].filter(
      (ticket) => campaignOf(ticket) === campaign,
    )
    const removed = await Promise.all(
      marks.map(({ id }) =>
        engine.ask('evict', () => engine.store.evict({ key, id, reason }), {
          limitMs: ADMINISTRATION_MS,
          key,
        }),
      ),
    )
    return removed.flat().length > 0
  }

  /** Asks the store who leads now. `null`: there is no leader. */
  leader(): Promise<Leader | null> {
    return currentLeader(this.#context.engine, this.key)
  }

  /** Asks the store who waits to be elected, in order: the first one is the next leader, if none has a higher priority. */
  async candidates(): Promise<readonly Candidate[]> {
    const queue = (await roomOf(this.#context.engine, this.key))?.queue ?? []
    return queue.map((waiter) => {
      const { value, ...owner } = parseOwner(waiter.owner)
      const [contender] = contendersIn([waiter])
      return {
        // A waiter without a campaign is a plain lock on the key.
        id: contender?.candidate ?? waiter.id,
        value,
        priority: contender?.priority ?? UNSAID,
        hasSteppedDown: contender?.rank === Number.NEGATIVE_INFINITY,
        owner,
        waitedMs: waiter.waitedMs,
      }
    })
  }

  /**
   * Hands the leadership to a candidate: those that wait before it join the queue again behind it, and this leader resigns. If the
   * candidate is gone by then, the queue decides, whatever the priorities. Only the leader itself can do this: as long as it holds the key, no other candidate
   * can be elected and lose its place.
   *
   * @param candidate its id, from {@link candidates}.
   * @returns when the leader's term is over, as {@link resign}. `false`: this object does not lead, or that candidate does not
   * wait. Then nothing has changed.
   * @throws {LeaseLostError} when the leadership is lost meanwhile, or the leader's work has ended by itself; {@link StoreError} when the
   * store does not answer: the leader leads on. In both cases others may have lost their places to the candidate.
   */
  async handTo(candidate: string): Promise<boolean> {
    if (typeof candidate !== 'string') throw expected('candidate', 'the id of a candidate', candidate)
    const term = [...this.#leading].find(({ isHeld }) => isHeld)
    if (term === undefined) return false
    const contenders = await contendersFor(this.#context, this.key)
    const place = contenders.findIndex((one) => one.candidate === candidate)
    if (place === -1) return false
    const limitMs = () => {
      term.assertMayChoose()
      return Math.min(ADMINISTRATION_MS, term.remainingMs)
    }
    await sendBack(this.#context, this.key, { contenders: contenders.slice(0, place), limitMs })
    // If the work has returned meanwhile, the term clears the way for the best candidate, or the candidate leads by now, perhaps as a
    // campaign of this object.
    term.assertMayChoose()
    term.hasSuccessor = true
    await resigned(term)
    return true
  }

  /**
   * Yields the current leader (or `null`), and then every change in order, until the loop ends or `signal` aborts. Changes
   * that a slow loop has not taken yet are kept. While the store does not answer, nothing is yielded; afterwards the
   * change is. The store's wakes announce changes. While there is no leader, `observe` also asks every second.
   *
   * @throws {StoreError} `store-refused`; {@link ClosedError} when the locks are closed. An abort ends the loop without an
   * error.
   */
  observe(
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<Leader | null, void, void> {
    checkOptions(options, ['signal'])
    const signal = parseSignal(options.signal)
    return new LeaderWatch(this.#context, this.key, this.#defaults).changes(signal)
  }

  #parse(options: CampaignOptions) {
    checkOptions(options, CAMPAIGN)
    const { value, grace, priority, yieldAfter, onError, ...rest } = options
    const parsed = parseSettings(rest, TAKES.try, {
      ...this.#defaults,
      renew: true,
      maxHoldMs: Number.POSITIVE_INFINITY,
      waitMs: Number.POSITIVE_INFINITY,
      maxWaiting: Number.POSITIVE_INFINITY,
      storeTimeoutMs: undefined,
    })
    const settings = { ...parsed, campaign: true }
    const stopMs = grace === undefined ? settings.ttlMs : parseDuration('grace', grace, HOLD_RANGE)
    checkValue(value)
    if (onError !== undefined) parseFunction('onError', onError)
    return { settings, stopMs, value, preference: parsePreference({ priority, yieldAfter }), onError }
  }
}

const CAMPAIGN: readonly string[] = [
  ...['ttl', 'minHold', 'lockDelay', 'signal', 'value', 'grace', 'priority', 'yieldAfter', 'onError'],
]

/** The pause after a refusal. It is long, because a person has to change something first. */
const REFUSED: Backoff = { firstMs: 1000, longestMs: 30_000, jitter: 0.5 }

function notAsked(key: string): StoreError {
  const why = `The leader of ${JSON.stringify(key)} could not be asked to step down within ${ADMINISTRATION_MS} ms, because it does not hold ${JSON.stringify(markOf(key))}. Its process may be suspended, or may not reach the store. Ask again later, or evict the key.`
  return new StoreError('store-unavailable', why, { key })
}

/** Resolves when the term is over. A call from inside its work does not wait for that. */
async function resigned(term: LeaderTerm): Promise<void> {
  term.stepDown('it resigned.')
  if (!term.isRunningHere) await term.over
}

/** Waits to be elected. An eviction from the queue does not end the wait; nor does a refusal, if there is an `onError`. */
async function elected(
  context: LocksContext,
  key: string,
  settings: HoldSettings,
  onError: ((error: unknown) => void) | undefined,
): Promise<HeldLease> {
  const { clock, chance, onlookers } = context.engine
  const closing = new AbortController()
  const onClose = () => closing.abort(closedDuring(key, 'waited for'))
  onlookers.add(onClose)
  try {
    for (let refusals = 1; ; refusals += 1) {
      try {
        return await hold(context, { key, shape: EXCLUSIVE, settings })
      } catch (error) {
        // First, because the caller's reason may itself be a `LeaseLostError`, of another lease.
        settings.signal?.throwIfAborted()
        // Evicted from the queue. The place is lost, and the candidate joins the queue again at its end.
        if (isHoldfastError(error, 'lease-lost')) continue
        if (onError === undefined || !isHoldfastError(error, 'store-refused')) throw error
        callListener(() => onError(error), warnOfListener)
        await paused(clock, backoffMs(REFUSED, refusals, chance), settings.signal, closing.signal)
        settings.signal?.throwIfAborted()
        closing.signal.throwIfAborted()
      }
    }
  } finally {
    onlookers.delete(onClose)
  }
}

function warnOfListener(error: unknown): void {
  process.emitWarning('`onError` of a campaign itself failed. The campaign goes on.', {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_ELECTION',
    detail: reportOf(error),
  })
}

/** Emits `elected`. The function that it returns emits `resigned`. */
function tellTerm(
  { engine: { clock, events } }: LocksContext,
  { ticket, fence }: HeldLease,
  lease: HoldSettings,
): (reason: LockEvents['resigned']['reason']) => void {
  const electedAt = clock.monotonicMs()
  events.elected.tell({ ticket, lease }, { fence })
  return (reason) =>
    events.resigned.tell({ ticket, lease }, { fence, ledMs: clock.monotonicMs() - electedAt, reason })
}
