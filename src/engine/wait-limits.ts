import type { Instant } from '../base/clock.ts'
import type { HoldfastError } from '../errors.ts'
import type { AcquireRequest } from './acquire-request.ts'
import { type Asking, isSilent, SILENCE_MS, type Waiting } from './acquisition-state.ts'
import type { EngineContext } from './engine-context.ts'
import type { Renewable } from './renewable.ts'
import { silenceOf, timeoutOf } from './ticket-errors.ts'

/** How long one request waits for its key, and for a store that does not answer. */
export class WaitLimits {
  readonly #request: AcquireRequest
  /** On the monotonic clock, as all times here. */
  readonly #startedAt: number
  readonly #until: number
  /** A wait shorter than a round trip still gets an answer, because the key may be free. */
  readonly #answerUntil: number
  readonly #silenceMs: number
  /** When to look who holds the key, so that the answer is there when the wait ends. `Infinity`: not any more, or never. */
  #lookAt: number
  /** It does not end before, because of a look that came late. */
  #notBefore = 0

  constructor(request: AcquireRequest, startedAt: number) {
    const { waitMs, storeTimeoutMs } = request
    this.#request = request
    this.#startedAt = startedAt
    this.#silenceMs = storeTimeoutMs ?? Number.POSITIVE_INFINITY
    // A caller that does not wait for the key still waits for the store's answer.
    this.#until = startedAt + (waitMs > 0 ? waitMs : (storeTimeoutMs ?? ANSWER_MS))
    this.#answerUntil = Math.max(this.#until, startedAt + SILENCE_MS)
    const isShort = waitMs < SHORTEST_WAIT_MS
    this.#lookAt = isShort ? Number.POSITIVE_INFINITY : this.#until - Math.min(LOOK_MS, waitMs / 2)
  }

  /**
   * Whether a look at a request without an answer comes late, because the process stood still. Node.js runs its timers before it
   * reads from a socket, so the answer may be here already. Then the wait is due again a little later, and no silence counts
   * until then. A look that was put off counts, however late it is. `dueAt` was not in the past when it was set.
   */
  putsOff(wait: Pick<Renewable, 'dueAt'>, state: Asking | Waiting, { monotonicMs }: Instant): boolean {
    const isAsked = state.tag === 'asking' ? state.silent : state.attempts > 0
    if (!isAsked || monotonicMs - wait.dueAt < LATE_MS || wait.dueAt === this.#notBefore) return false
    this.#notBefore = monotonicMs + LATE_MS
    wait.dueAt = this.#notBefore
    if (state.tag === 'waiting') {
      state.askAgainAt = Math.max(state.askAgainAt, wait.dueAt)
      state.slackMs = 0
    }
    return true
  }

  /** When it ends, unless the store answers before. */
  endOf(state: Asking | Waiting): number {
    return Math.max(this.#plannedEndOf(state), this.#notBefore)
  }

  #plannedEndOf(state: Asking | Waiting): number {
    if (state.tag === 'asking') return Math.min(this.#answerUntil, state.since + this.#silenceMs)
    if (state.attempts === 0) return this.#until
    return Math.min(this.#until, state.unansweredSince + this.#silenceMs)
  }

  /** When there is something to do at the latest. */
  nextOf(state: Asking | Waiting): number {
    const end = this.endOf(state)
    return state.tag === 'waiting' ? Math.min(end, this.#lookAt) : end
  }

  /** Whether it is time to look who holds the key. True once. */
  takeLook({ monotonicMs }: Instant): boolean {
    if (monotonicMs < this.#lookAt) return false
    this.#lookAt = Number.POSITIVE_INFINITY
    return true
  }

  /** What the caller is told at its end. */
  errorOf(state: Asking | Waiting, { clock, store, leases, holders }: EngineContext): HoldfastError {
    const { ticket, startedAtMs } = this.#request
    const at = clock.monotonicMs()
    // Of several keys the caller has waited for all until now.
    const waitedMs = Math.round(at - (startedAtMs ?? this.#startedAt))
    const isCutShort = at < this.#until
    if (state.tag === 'asking' || isCutShort || isSilent(state, at))
      return silenceOf(ticket, store.name, isCutShort ? this.#silenceMs : waitedMs, state.lastError)
    const isHeldHere = leases.holds(ticket.key)
    return timeoutOf(ticket, waitedMs, { ahead: state.ahead, isHeldHere, holder: holders.holderOf(ticket) })
  }
}

/** A timer that fires so late was held up. As long again is enough to read what has arrived meanwhile. */
const LATE_MS = 50
/** How long a store may take to answer somebody who will not wait for the key. */
const ANSWER_MS = 5000
/** A look is usually answered within so much. */
const LOOK_MS = 250
/** Whoever waits for less asks often, and a look would double the requests. */
const SHORTEST_WAIT_MS = 100
