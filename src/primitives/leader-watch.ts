import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import type { RoomView } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { ttlFields } from '../engine/ticket-fields.ts'
import { isHoldfastError } from '../errors.ts'
import { type LocksContext, makeTicket, tryHold } from './hold.ts'
import { markOf, vacancyOf } from './leadership.ts'
import { type HoldSettings, SHARED } from './options.ts'

/** Who leads, as anybody can see it. */
export interface Leader {
  /** Larger than that of every leader before: each term has its own. */
  readonly fence: bigint
  /** What the leader published of itself with `value`. */
  readonly value: string | undefined
  /** Host, process id and label, for people. */
  readonly owner: Readonly<Record<string, unknown>>
}

export async function currentLeader(engine: Engine, key: string): Promise<Leader | null> {
  return (await lookAt(engine, key)).leader
}

export async function roomOf(engine: Engine, key: string): Promise<RoomView | undefined> {
  const page = await engine.ask(
    'inspect',
    () => engine.store.inspect({ prefix: key, cursor: undefined, count: 1 }),
    ADMINISTRATION_MS,
    key,
  )
  // The room of that very key comes first, where there is one.
  const [room] = page.rooms
  return room?.key === key ? room : undefined
}

/** Who leads, in which term, and whether somebody was offered the leadership and has not taken it yet. */
async function lookAt(
  engine: Engine,
  key: string,
): Promise<{ leader: Leader | null; term: string | null; isOffered: boolean }> {
  const holders = (await roomOf(engine, key))?.holders ?? []
  const holder = holders.find(({ state }) => state === 'held')
  if (holder === undefined)
    return { leader: null, term: null, isOffered: holders.some(({ state }) => state === 'offered') }
  const { value, ...owner } = JSON.parse(holder.owner) as Record<string, unknown>
  const leader = { fence: holder.fence, value: typeof value === 'string' ? value : undefined, owner }
  // A store may have been told to do without fences; and one ticket may be let in again, under another fence.
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
  /** What the loop has not taken yet. */
  readonly #changes: (Leader | null)[] = []
  /** The term of the leader that was told last; `undefined` before the first. */
  #known: string | null | undefined
  #looking: Promise<unknown> = Promise.resolve()
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
    // Taken for an instant only. Should this process die just then, the next leader is announced that much later.
    this.#turnSettings = {
      ...this.#vacantSettings,
      ...ttlFields(Math.min(defaults.ttlMs, LOOKING_MS)),
      renew: false,
    }
  }

  async *changes(signal: AbortSignal | undefined): AsyncGenerator<Leader | null, void, void> {
    const { signals } = this.#context.engine
    const ending = {
      abort: () => {
        this.#stopping.abort()
        this.#tell()
      },
    }
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
    // How often in a row it came here in vain.
    let idle = 0
    while (!this.#stopping.signal.aborted) {
      try {
        const { leads, changed } = await this.#look()
        idle = changed ? 0 : idle + 1
        // Let in at once means that the leader has not announced itself yet, or is on its way out.
        const restMs = leads === 'nobody' ? SELDOM_MS : idle > 1 ? backoffMs(IN_VAIN, idle - 1) : 0
        if (restMs > 0 && !(await this.#rest(restMs))) continue
        if (leads === 'somebody')
          await this.#waitForEnd(() => {
            idle = 0
          })
      } catch (error) {
        if (this.#stopping.signal.aborted) return
        // Somebody has evicted all of the mark.
        if (isHoldfastError(error, 'lease-lost')) continue
        if (!isHoldfastError(error, 'store-unavailable')) return this.#fail(error)
        await this.#pause(SELDOM_MS)
      }
    }
  }

  /** For so long, or until somebody is elected. `false`: it has not rested, and has to look again before it may. */
  async #rest(durationMs: number): Promise<boolean> {
    const isTold = this.#vacancy !== null && this.#vacancy.state !== 'lost'
    if (!isTold && durationMs >= WORTH_A_REQUEST_MS) {
      this.#vacancy = await tryHold(this.#context, vacancyOf(this.#key), SHARED, this.#vacantSettings)
      // Whoever was elected before this moment has told others only.
      if (this.#vacancy !== null) return false
    }
    await this.#pause(durationMs, this.#vacancy?.signal)
    return true
  }

  #leaveVacancy(): void {
    void this.#vacancy?.release()
    this.#vacancy = null
  }

  /** Waits until the mark is free; `onQueued` is called when it was not. */
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
      // Behind whose mark it stands is known only now: the leader may have changed since the last look.
      // It may also have been forgotten meanwhile, and stand behind the mark of the next leader now.
      whileQueued: (place) => {
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
    })
    await turn?.release()
  }

  /**
   * Who leads, and whether that is another one than at the last look. One look at a time, so that changes are told in their
   * order. While the leadership is on its way from one to the next, nothing has changed yet.
   */
  #look(): Promise<Look> {
    const look = this.#looking.then(async (): Promise<Look> => {
      const { leader, term, isOffered } = await lookAt(this.#context.engine, this.#key)
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

interface Look {
  readonly leads: 'nobody' | 'soon' | 'somebody'
  readonly changed: boolean
}

const LOOKING_MS = 3000
/** A shorter rest is over before the vacancy would be held. */
const WORTH_A_REQUEST_MS = 100
const SELDOM_MS = 1000
/** Without jitter, which `#pause` adds to every pause. */
const IN_VAIN: Backoff = { firstMs: 5, longestMs: SELDOM_MS, jitter: 0 }
const ADMINISTRATION_MS = 10_000
