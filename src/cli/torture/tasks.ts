import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isHoldfastError, type Lease, type Locks } from '../../index.ts'
import { type Random, seededRandom } from '../../testing/index.ts'
import { type Duty, type KeySet, keysOf } from './assignment.ts'
import { type Holding, type HoldPlan, useLease } from './hold.ts'
import type { Notes } from './note-events.ts'
import { Registers } from './registers.ts'

export interface TaskPlan extends Notes {
  readonly duty: Duty
  /** Aborts when no further task begins. */
  readonly over: AbortSignal
}

/** What a process does: a loop of tasks for each kind of lock, all at the same time. */
export class Tasks {
  readonly #locks: Locks
  readonly #plan: TaskPlan
  readonly #keys: KeySet
  readonly #random: Random
  readonly #registers = new Map<string, Registers>()
  readonly #bornAt: number
  /** The ticket with which this process leads. */
  #leaderId = ''

  constructor(locks: Locks, plan: TaskPlan) {
    this.#locks = locks
    this.#plan = plan
    this.#keys = keysOf(plan.duty.prefix)
    this.#bornAt = plan.now()
    this.#random = seededRandom(`${plan.duty.seed} ${plan.duty.worker}`)
    locks.on('elected', ({ id }) => {
      this.#leaderId = id
    })
  }

  /** Resolves when it is over, or the history is full, and each loop is done with its last task. */
  async run(): Promise<void> {
    const mutex = () => this.#takeMutex()
    const loops = [mutex, mutex, () => this.#readOrWrite(), () => this.#takeSeveral(), () => this.#lead()]
    if (this.#plan.duty.semaphores) loops.push(() => this.#takePermits())
    await Promise.all(loops.map((task) => this.#repeat(task)))
  }

  close(): void {
    for (const registers of this.#registers.values()) registers.close()
  }

  async #repeat(task: () => Promise<void>): Promise<void> {
    const { duty, over, history, now } = this.#plan
    while (!over.aborted && !history.isFull) {
      const elapsedMs = now() - this.#bornAt
      // The longer the ttl, the more lines has a task.
      const aheadMs = Math.max(0, history.aheadMs({ elapsedMs, durationMs: duty.durationMs }))
      const pauseMs = Math.min(LONGEST_PAUSE_MS, aheadMs + this.#random.next() * 2 * duty.paceMs)
      // An abort ends the pause.
      await sleep(pauseMs, undefined, { signal: over }).catch(() => {})
      if (over.aborted) return
      try {
        await task()
      } catch (error) {
        // A key that was not free in time, or a store that did not answer: both are in the history already.
        if (!isHoldfastError(error) && !isAbort(error)) throw error
      }
    }
    if (!over.aborted) history.add({ tag: 'full', at: now() })
  }

  async #takeMutex(): Promise<void> {
    const { mutex } = this.#keys
    if (this.#random.chance(0.1)) {
      const lease = await this.#locks.tryAcquire(mutex)
      return lease === null ? undefined : this.#hold([lease])
    }
    return this.#hold([await this.#locks.acquire(mutex, this.#wait())])
  }

  async #readOrWrite(): Promise<void> {
    const both = this.#locks.readWrite(this.#keys.readWrite)
    if (this.#random.chance(0.3)) return this.#hold([await both.acquireWrite(this.#wait())])
    return this.#hold([await both.acquireRead(this.#wait())], { shared: true })
  }

  async #takePermits(): Promise<void> {
    const semaphore = this.#locks.semaphore(this.#keys.permits, 3)
    const units = this.#random.pick([1, 1, 1, 2, 3])
    return this.#hold([await semaphore.acquire({ ...this.#wait(), units })], { shared: true })
  }

  async #takeSeveral(): Promise<void> {
    const left = this.#random.between(0, 2)
    const keys = this.#keys.several.filter((_, index) => index !== left)
    const set = await this.#locks.acquireAll(keys, this.#wait())
    return this.#hold(set.leases)
  }

  async #lead(): Promise<void> {
    const { over } = this.#plan
    const { leader } = this.#keys
    const signal = AbortSignal.any([over, AbortSignal.timeout(this.#random.between(500, 5000))])
    await this.#locks.election(leader).campaign({ signal }, async (leadership) => {
      // The lost lease of a term is told by a signal of its own: `signal` aborts also when the campaign ends.
      const holding: Holding = {
        id: this.#leaderId,
        fence: leadership.fence,
        signal: leadership.lost,
        assertHeld: () => leadership.assertHeld(),
        get remainingMs() {
          return leadership.remainingMs
        },
      }
      await useLease(holding, { ...this.#holdPlan(leader), until: leadership.signal })
    })
  }

  async #hold(leases: readonly Lease[], { shared = false } = {}): Promise<void> {
    try {
      await Promise.all(
        leases.map((lease) => useLease(lease, this.#holdPlan(shared ? undefined : lease.key))),
      )
    } finally {
      await Promise.all(leases.map((lease) => lease.release()))
    }
  }

  #holdPlan(registered: string | undefined): HoldPlan {
    const { duty, history, now } = this.#plan
    const isLong = this.#random.chance(0.025)
    const lastsMs = isLong ? duty.ttlMs * (0.5 + this.#random.next()) : this.#random.between(1, 40)
    const registers = registered === undefined ? undefined : this.#registersOf(registered)
    return { history, now, lastsMs, registers }
  }

  #registersOf(key: string): Registers {
    const { folder, prefix } = this.#plan.duty
    const known = this.#registers.get(key)
    if (known !== undefined) return known
    const registers = new Registers(join(folder, `register-${key.slice(prefix.length)}.jsonl`))
    this.#registers.set(key, registers)
    return registers
  }

  /** Most wait for as long as it takes; some lose patience, or are told to give up. */
  #wait(): { wait: number; signal: AbortSignal } {
    const { over, duty } = this.#plan
    const chance = this.#random.next()
    if (chance < 0.12) return { wait: this.#random.between(10, 300), signal: over }
    if (chance > 0.93) {
      const soon = AbortSignal.timeout(this.#random.between(5, 200))
      return { wait: duty.settleMs, signal: AbortSignal.any([over, soon]) }
    }
    return { wait: 2 * duty.settleMs, signal: over }
  }
}

/** The longest that a timer can take. */
const LONGEST_PAUSE_MS = 2 ** 31 - 1

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && (error.name === 'AbortError' || error.name === 'TimeoutError')
}
