import { LONGEST_MS, TTL_RANGE } from '../base/duration.ts'
import { type InspectedHolder, isHoldfastError, type Lease, type Locks, type Owner } from '../index.ts'

/** @inline */
export type TickResult = 'ok' | 'failed' | 'skipped'

/** How often a run of this tick has begun, this one included. */
export interface Begin {
  readonly attempt: number
  readonly lease: Lease
}

/** A holder as the store shows it. */
export interface Sighting {
  /** Host, process id and label, for people. */
  readonly owner: Owner
  readonly sinceMs: number
}

/**
 * The state of a job that all processes share. Each mark is a key that stays taken: its lease is neither renewed nor released,
 * so the store's clock ends it. A mark is about one tick. With a single mark for the progress of the job, a process whose
 * clock is a year ahead would spoil all ticks until then. So it spoils only its own.
 */
export class Marks {
  /** The key that is held during a run. */
  readonly lock: string
  readonly #locks: Locks
  /** Aborts requests before a run. Requests after a run go on. */
  readonly #asking: { readonly signal: AbortSignal }

  constructor(locks: Locks, name: string, signal: AbortSignal) {
    this.#locks = locks
    this.#asking = { signal }
    this.lock = `schedule:${name}`
  }

  /** Whether the tick is settled. Looks as a reader, because a reader does not exclude other processes that look. */
  isSettled(tickMs: number): Promise<boolean> {
    return this.#isTaken(this.#keyOf(tickMs, 'done'), this.#asking)
  }

  /**
   * Takes the mark of a run that begins. It stays until it is released, or for `rememberMs` after a crash. `undefined` if `most`
   * runs of this tick have begun and never ended. Call it under the lock.
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

  /** Whether a run of this tick has begun and never ended. Call it under the lock. */
  hasBegun(tickMs: number): Promise<boolean> {
    return this.#isTaken(this.#keyOf(tickMs, begun(1)), this.#asking)
  }

  /**
   * `begun`: a run of this tick goes on, or broke off and was not taken over. `undefined`: no run has begun, or the store has
   * forgotten it. Out of date by the time it is read, so look again under the lock.
   */
  async stateOf(tickMs: number): Promise<'settled' | 'begun' | undefined> {
    if ((await this.#holderOf(this.#keyOf(tickMs, 'done'))) !== undefined) return 'settled'
    return (await this.#holderOf(this.#keyOf(tickMs, begun(1)))) === undefined ? undefined : 'begun'
  }

  /** Whether this process is the one that tells that the tick was missed, or runs it late. At most one process gets `true`. */
  async claimMissed(tickMs: number, rememberMs: number): Promise<boolean> {
    const options = { ...MARK, ...this.#asking, ttl: rememberMs }
    const lease = await this.#locks.tryAcquire(this.#keyOf(tickMs, 'missed'), options)
    lease?.detach()
    return lease !== null
  }

  /** Takes back what {@link claimMissed} has claimed. */
  async forgetMissed(tickMs: number): Promise<void> {
    await this.#locks.evictAll(this.#keyOf(tickMs, 'missed'), { reason: 'the tick did not begin' })
  }

  /** Removes the marks of this many begins, because the tick is settled. */
  async forgetBegins(tickMs: number, attempts: number): Promise<void> {
    for (let attempt = 1; attempt <= attempts; attempt += 1) {
      await this.#locks.evictAll(this.#keyOf(tickMs, begun(attempt)), {
        reason: 'the tick is settled',
      })
    }
  }

  /** @throws {StoreError} when the store could not be told: somebody may run the tick again. */
  async settle(tickMs: number, result: TickResult, rememberMs: number): Promise<void> {
    // The result first: a process that sees that the tick is settled must also find the result.
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
    await this.#renew(key, holder)
    return holder.heldMs
  }

  /** How long ago a process was last there, in milliseconds. `undefined`: the store has not heard of one for 24 days. */
  async presentAgoMs(expression: string, timezone: string): Promise<number | undefined> {
    const holder = await this.#holderOf(this.#presenceOf(expression, timezone))
    return holder === undefined ? undefined : Math.max(0, LONGEST_MS - holder.remainingMs)
  }

  /** Each process renews the same mark, so what is left of it says when that was. */
  async notePresence(expression: string, timezone: string): Promise<void> {
    const key = this.#presenceOf(expression, timezone)
    const options = { ...MARK, ...this.#asking, ttl: LONGEST_MS }
    const first = await this.#locks.tryAcquire(key, options)
    first?.detach()
    if (first === null) await this.#renew(key, await this.#holderOf(key))
  }

  async running(): Promise<Sighting | undefined> {
    const holder = await this.#holderOf(this.lock)
    return holder?.state === 'held' ? sightingOf(holder) : undefined
  }

  /** The lock of the job is not released, and stays taken for at least this long. */
  async leaveTaken(lease: Lease, forMs: number): Promise<void> {
    const ttl = Math.max(forMs, TTL_RANGE.leastMs)
    const left = await this.#locks.adopt(lease.detach(), { ...ADOPTED, ttl })
    left.detach()
  }

  /** How long ago the tick was settled, in milliseconds; `undefined` if it is not, or forgotten. */
  async settledAgoMs(tickMs: number): Promise<number | undefined> {
    return (await this.#holderOf(this.#keyOf(tickMs, 'done')))?.heldMs
  }

  /** The process that settled a tick, and the result; `undefined` if it is not settled, or forgotten. */
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
      // It waits, because another process may be looking at the mark just now.
      const lease = await this.#locks.acquire(key, { ...MARK, ttl: ttlMs, wait: MARKING_MS })
      lease.detach()
    } catch (error) {
      // Still queued after every reader must be gone: another process holds the mark, and our lease was lost.
      if (!isHoldfastError(error, 'acquire-timeout') || !('ahead' in error) || error.ahead === undefined)
        throw error
    }
  }

  /** Has the mark stay for another 24 days. */
  async #renew(key: string, holder: InspectedHolder | undefined): Promise<void> {
    if (holder === undefined) return
    const { id, fence, units, limit } = holder
    try {
      const json = { key, id, fence: String(fence), units, limit, ttlMs: LONGEST_MS }
      const lease = await this.#locks.adopt(json, { ...ADOPTED, ...this.#asking, ttl: LONGEST_MS })
      lease.detach()
    } catch (error) {
      // Gone at this very moment; the next call begins anew.
      if (!isHoldfastError(error, 'lease-lost')) throw error
    }
  }

  #presenceOf(expression: string, timezone: string): string {
    return `${this.lock}#seen ${timezone} ${expression}`
  }

  async #isTaken(key: string, asking = {}): Promise<boolean> {
    const look = await this.#locks.readWrite(key).tryAcquireRead({ ...MARK, ...asking, ttl: LOOK_MS })
    await look?.release()
    return look === null
  }

  async #holderOf(key: string): Promise<InspectedHolder | undefined> {
    const room = await this.#locks.peek(key)
    // Readers are other processes that look at the mark just now.
    return room?.holders.find(({ limit }) => limit === 1)
  }

  #keyOf(tickMs: number, what: 'done' | 'missed' | TickResult | ReturnType<typeof begun>): string {
    return `${this.lock}@${new Date(tickMs).toISOString()}#${what}`
  }
}

function begun(attempt: number): `begun${string}` {
  return attempt === 1 ? 'begun' : `begun-${attempt}`
}

function sightingOf({ owner, heldMs }: InspectedHolder): Sighting {
  return { owner, sinceMs: heldMs }
}

const MARKING_MS = 5000
/** A tick outlives a restart of the store, so this asks again also while no server is there. */
const ADOPTED = { renew: false, storeTimeout: MARKING_MS } as const
/** Whatever the defaults of the locks are. */
const MARK = { ...ADOPTED, minHold: 0, lockDelay: 0 } as const
/** A process that looks holds the mark for one round trip. If it dies just then, the mark is taken for this ttl. */
const LOOK_MS = 2000
