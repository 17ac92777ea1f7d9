import { type HolderView, isHoldfastError, type Lease, type Locks } from '../index.ts'

export type TickResult = 'ok' | 'failed' | 'skipped'

/** How often a run of this tick has begun, this one included. */
export interface Begin {
  readonly attempt: number
  readonly lease: Lease
}

/** What the store knows of somebody who holds a key. */
export interface Sighting {
  /** Host, process id and label, for people. */
  readonly owner: Readonly<Record<string, unknown>>
  readonly sinceMs: number
}

/**
 * What all processes know of a job, kept as keys that stay taken: leases that nobody renews and nobody gives back, which the
 * store forgets by its own clock. Each is about one instant, so that a process whose clock is a year ahead spoils its own ticks
 * only, as it could not with one mark that says how far the job has come.
 */
export class Marks {
  /** Held while a run is going on. */
  readonly lock: string
  readonly #locks: Locks
  /** Ends what is asked on the way to a run; what is told after it is told. */
  readonly #asking: { readonly signal: AbortSignal }

  constructor(locks: Locks, name: string, signal: AbortSignal) {
    this.#locks = locks
    this.#asking = { signal }
    this.lock = `schedule:${name}`
  }

  /** Whether nobody has to care about that tick any more. Looks as a reader, because those who look must not see one another. */
  isSettled(tickMs: number): Promise<boolean> {
    return this.#isTaken(this.#keyOf(tickMs, 'done'), this.#asking)
  }

  /**
   * The mark of a run that begins, kept until it is released, and for that long after a crash; `undefined` when as many as `most`
   * began before and never ended. Ask under the lock.
   */
  async begin(
    tickMs: number,
    { most, rememberMs }: { readonly most: number; readonly rememberMs: number },
  ): Promise<Begin | undefined> {
    const options = { ...MARK, ...this.#asking, renew: true, maxHold: LONGEST_MS, ttl: rememberMs }
    for (let attempt = 1; attempt <= most; attempt += 1) {
      const lease = await this.#locks.tryAcquire(this.#keyOf(tickMs, begun(attempt)), options)
      if (lease !== null) return { attempt, lease }
    }
    return undefined
  }

  /** Whether a run began and never ended. Ask under the lock. */
  hasBegun(tickMs: number): Promise<boolean> {
    return this.#isTaken(this.#keyOf(tickMs, begun(1)), this.#asking)
  }

  /** Nobody has to know of so many begins any more: the tick is settled. */
  async forgetBegins(tickMs: number, attempts: number): Promise<void> {
    for (let attempt = 1; attempt <= attempts; attempt += 1) {
      await this.#locks.evictAll(this.#keyOf(tickMs, begun(attempt)), {
        reason: 'the tick is settled',
      })
    }
  }

  /** @throws {StoreError} when the store could not be told: somebody may run the tick again. */
  async settle(tickMs: number, result: TickResult, rememberMs: number): Promise<void> {
    // First, so that who sees that it is settled also sees how.
    if (result !== 'ok') await this.#mark(this.#keyOf(tickMs, result), rememberMs)
    await this.#mark(this.#keyOf(tickMs, 'done'), rememberMs)
  }

  /**
   * For how long the job is known with this expression, in milliseconds; `undefined` when it is new. It is forgotten 24 days after
   * the last call.
   */
  async knownForMs(expression: string, timezone: string): Promise<number | undefined> {
    const key = `${this.lock}#since ${timezone} ${expression}`
    const options = { ...MARK, ...this.#asking, ttl: LONGEST_MS }
    const first = await this.#locks.tryAcquire(key, options)
    if (first !== null) {
      first.detach()
      return undefined
    }
    const holder = await this.#holderOf(key)
    if (holder === undefined) return undefined
    const { id, fence, units, limit, heldMs } = holder
    try {
      const json = { key, id, fence: String(fence), units, limit, ttlMs: LONGEST_MS }
      const lease = await this.#locks.adopt(json, options)
      lease.detach()
    } catch (error) {
      // Gone at this very moment; the next call begins anew.
      if (!isHoldfastError(error, 'lease-lost')) throw error
    }
    return heldMs
  }

  async running(): Promise<Sighting | undefined> {
    const holder = await this.#holderOf(this.lock)
    return holder?.state === 'held' ? sightingOf(holder) : undefined
  }

  /** Who settled a tick, and how; `undefined` when nobody has, or it is forgotten. */
  async settled(tickMs: number): Promise<(Sighting & { readonly result: TickResult }) | undefined> {
    const holder = await this.#holderOf(this.#keyOf(tickMs, 'done'))
    if (holder === undefined) return undefined
    for (const result of ['failed', 'skipped'] as const) {
      if (await this.#isTaken(this.#keyOf(tickMs, result))) return { ...sightingOf(holder), result }
    }
    return { ...sightingOf(holder), result: 'ok' }
  }

  async #mark(key: string, ttlMs: number): Promise<void> {
    try {
      // Not a try: somebody may be looking just now.
      const lease = await this.#locks.acquire(key, { ...MARK, ttl: ttlMs, wait: MARKING_MS })
      lease.detach()
    } catch (error) {
      // Still in the queue after all who look are gone: another one has marked it, under whom our lease was lost.
      if (!isHoldfastError(error, 'acquire-timeout') || !('ahead' in error) || error.ahead === undefined)
        throw error
    }
  }

  async #isTaken(key: string, asking = {}): Promise<boolean> {
    const look = await this.#locks.readWrite(key).tryAcquireRead({ ...MARK, ...asking, ttl: LOOK_MS })
    await look?.release()
    return look === null
  }

  async #holderOf(key: string): Promise<HolderView | undefined> {
    // Some stores look through all their keys before they say that there is none.
    if (!(await this.#isTaken(key))) return undefined
    // The room of that very key comes first, where there is one.
    for await (const room of this.#locks.inspect({ prefix: key, pageSize: 1 })) {
      return room.key === key ? room.holders[0] : undefined
    }
    return undefined
  }

  #keyOf(tickMs: number, what: 'done' | TickResult | ReturnType<typeof begun>): string {
    return `${this.lock}@${new Date(tickMs).toISOString()}#${what}`
  }
}

function begun(attempt: number): `begun${string}` {
  return attempt === 1 ? 'begun' : `begun-${attempt}`
}

function sightingOf({ owner, heldMs }: HolderView): Sighting {
  return { owner: JSON.parse(owner) as Record<string, unknown>, sinceMs: heldMs }
}

/** Whatever the defaults of the locks are. */
const MARK = { renew: false, minHold: 0, lockDelay: 0 } as const
/** Whoever looks has it for one round trip, or until this if it dies. */
const LOOK_MS = 2000
const MARKING_MS = 5000
/** The longest that a store keeps a key unasked. */
export const LONGEST_MS: number = 24 * 86_400_000
