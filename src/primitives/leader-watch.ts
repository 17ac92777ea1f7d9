import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import { endedByReturn } from '../base/ended-by-return.ts'
import { type Owner, parseOwner } from '../base/owner.ts'
import type { Abortable } from '../base/signal-watch.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { ttlFields } from '../engine/ticket-fields.ts'
import { isHoldfastError } from '../errors.ts'
import { type LocksContext, makeTicket, tryHold } from './hold.ts'
import { roomOf } from './inspected.ts'
import { markOf, vacancyOf } from './leadership.ts'
import { type HoldSettings, SHARED } from './options.ts'

/** The current leader, as every process can see it. */
export interface Leader {
  /** Larger than the fence of every earlier leader. Each term has its own. */
  readonly fence: bigint
  /** The `value` that the leader gave to `campaign`. */
  readonly value: string | undefined
  /** Host, process id and label, for people. */
  readonly owner: Owner
}

export async function currentLeader(engine: Engine, key: string): Promise<Leader | null> {
  return (await lookAt(engine, key)).leader
}

/** Who leads, in which term, and whether the leadership is offered to a candidate that has not confirmed yet. */
async function lookAt(
  engine: Engine,
  key: string,
  limit: { readonly limitMs?: number } = {},
): Promise<{ leader: Leader | null; term: string | null; isOffered: boolean }> {
  const holders = (await roomOf(engine, key, limit))?.holders ?? []
  const holder = holders.find(({ state }) => state === 'held')
  if (holder === undefined)
    return { leader: null, term: null, isOffered: holders.some(({ state }) => state === 'offered') }
  const { value, ...owner } = parseOwner(holder.owner)
  const leader = { fence: holder.fence, value, owner }
  // The id alone would not do: a ticket may be admitted again under another fence. Nor the fence: a store may have none.
  return { leader, term: `${holder.id} ${holder.fence}`, isOffered: false }
}

/**
 * Notices changes of the leader without polling. The leader holds a second key, the mark. The watch waits for the mark as a
 * reader, so it is let in when the term ends. While nobody leads, the watch holds a third key, the vacancy, as a reader, and
 * a new leader evicts it. After each of these the watch looks who leads. It compares terms, so looking too often reports
 * nothing twice.
 */
export class LeaderWatch {
  readonly #context: LocksContext
  readonly #key: string
  readonly #turnSettings: HoldSettings
  readonly #vacantSettings: HoldSettings
  readonly #stopping = new AbortController()
  #vacancy: HeldLease | null = null
  /** The changes that the caller's loop has not taken yet. */
  readonly #changes: (Leader | null)[] = []
  /** The term that was reported last; `null`: no leader; `undefined` before the first report. */
  #known: string | null | undefined
  #looking: Promise<unknown> = Promise.resolve()
  /** Looks in a row without an answer. */
  #unanswered = 0
  #end: { readonly error: unknown } | undefined
  #tell: () => void = () => {}

  constructor(context: LocksContext, key: string, defaults: HoldSettings) {
    this.#context = context
    this.#key = key
    this.#vacantSettings = {
      ...defaults,
      renew: true,
      maxHoldMs: Number.POSITIVE_INFINITY,
      waitMs: Number.POSITIVE_INFINITY,
      minHoldMs: 0,
      lockDelayMs: 0,
      signal: this.#stopping.signal,
      quiet: true,
    }
    // The mark is held for an instant only. If this process dies just then, the next leader's mark is late by this ttl.
    this.#turnSettings = {
      ...this.#vacantSettings,
      ...ttlFields(Math.min(defaults.ttlMs, LOOKING_MS)),
      renew: false,
    }
  }

  changes(signal: AbortSignal | undefined): AsyncGenerator<Leader | null, void, void> {
    const abort = () => {
      this.#stopping.abort()
      this.#tell()
    }
    return endedByReturn(this.#changesUntil(signal, { abort }), abort)
  }

  async *#changesUntil(
    signal: AbortSignal | undefined,
    ending: Abortable,
  ): AsyncGenerator<Leader | null, void, void> {
    const { signals } = this.#context.engine
    if (signal?.aborted === true) return
    if (signal !== undefined) signals.add(signal, ending)
    void this.#watch().then(() => this.#leaveVacancy())
    try {
      while (!this.#stopping.signal.aborted) {
        const next = this.#changes.shift()
        if (next !== undefined) yield next
        else if (this.#end !== undefined) throw this.#end.error
        else {
          await new Promise<void>((resolve) => {
            this.#tell = resolve
          })
        }
      }
    } finally {
      if (signal !== undefined) signals.remove(signal, ending)
      this.#stopping.abort()
    }
  }

  async #watch(): Promise<void> {
    // How many looks in a row have found no change.
    let idle = 0
    while (!this.#stopping.signal.aborted) {
      try {
        const { leads, changed } = await this.#look()
        idle = changed ? 0 : idle + 1
        // If the mark is free although there is a leader, that leader has not taken it yet, or its term is ending.
        const restMs = leads === 'nobody' ? SELDOM_MS : idle > 1 ? backoffMs(IN_VAIN, idle - 1) : 0
        if (restMs > 0 && !(await this.#rest(restMs))) continue
        if (leads === 'somebody')
          await this.#waitForEnd(() => {
            idle = 0
          })
      } catch (error) {
        if (this.#stopping.signal.aborted) return
        // Somebody evicted every ticket of the mark, this one included.
        if (isHoldfastError(error, 'lease-lost')) continue
        if (!isHoldfastError(error, 'store-unavailable')) return this.#fail(error)
        await this.#pause(SELDOM_MS)
      }
    }
  }

  /** Rests for this long, or until a leader evicts the vacancy. `false`: it took the vacancy instead, so look again first. */
  async #rest(durationMs: number): Promise<boolean> {
    const isTold = this.#vacancy !== null && this.#vacancy.state !== 'lost'
    if (!isTold && durationMs >= WORTH_A_REQUEST_MS) {
      this.#vacancy = await tryHold(this.#context, {
        key: vacancyOf(this.#key),
        shape: SHARED,
        settings: this.#vacantSettings,
      })
      // A leader that was elected before this moment has not evicted this ticket, so the caller has to look again.
      if (this.#vacancy !== null) return false
    }
    await this.#pause(durationMs, this.#vacancy?.signal)
    return true
  }

  #leaveVacancy(): void {
    void this.#vacancy?.release()
    this.#vacancy = null
  }

  /** Waits until the mark is free. Calls `onQueued` each time the store answers that it is not. */
  async #waitForEnd(onQueued: () => void): Promise<void> {
    const { engine, nextId } = this.#context
    const key = markOf(this.#key)
    let toLook = false
    const turn = await engine.acquire({
      ticket: makeTicket(this.#context, {
        key,
        id: nextId(),
        shape: SHARED,
        settings: this.#turnSettings,
        patienceMs: this.#turnSettings.patienceMs,
      }),
      waitMs: Number.POSITIVE_INFINITY,
      signal: this.#stopping.signal,
      lease: this.#turnSettings,
      // The leader may have changed since the last look, so a new place in the queue needs a new look. The store may also
      // have forgotten this ticket: then it is queued anew, perhaps behind the mark of the next leader.
      watch: {
        queued: (place) => {
          onQueued()
          this.#leaveVacancy()
          if (place === 'new') toLook = true
          if (toLook) {
            toLook = false
            this.#look().catch(() => {
              toLook = true
            })
          }
          return undefined
        },
        left: () => {},
      },
    })
    await turn?.release()
  }

  /**
   * Asks who leads, and whether the term has changed since the last look. Looks run one at a time, so that changes are
   * reported in order. If a reply is lost, the next look must not wait for it for long. While the leadership is offered and not
   * yet confirmed, the look reports no change.
   */
  #look(): Promise<LookResult> {
    const look = this.#looking.then(async (): Promise<LookResult> => {
      const { engine } = this.#context
      this.#unanswered += 1
      const limitMs = engine.attemptMs(this.#unanswered)
      const { leader, term, isOffered } = await lookAt(engine, this.#key, { limitMs })
      this.#unanswered = 0
      if (isOffered) return { leads: 'soon', changed: false }
      const leads = leader === null ? 'nobody' : 'somebody'
      if (term === this.#known) return { leads, changed: false }
      this.#known = term
      this.#changes.push(leader)
      this.#tell()
      return { leads, changed: true }
    })
    this.#looking = look.catch(() => {})
    return look
  }

  #fail(error: unknown): void {
    this.#end = { error }
    this.#tell()
  }

  #pause(durationMs: number, told?: AbortSignal): Promise<void> {
    const { clock, chance } = this.#context.engine
    return paused(clock, durationMs * (0.8 + chance() * 0.4), this.#stopping.signal, told)
  }
}

interface LookResult {
  readonly leads: 'nobody' | 'soon' | 'somebody'
  readonly changed: boolean
}

const LOOKING_MS = 3000
/** A shorter rest is over before the vacancy would be held. */
const WORTH_A_REQUEST_MS = 100
const SELDOM_MS = 1000
/** Without jitter, which `#pause` adds to every pause. */
const IN_VAIN: Backoff = { firstMs: 5, longestMs: SELDOM_MS, jitter: 0 }
