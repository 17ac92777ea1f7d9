import { nextRunNumber } from '../base/run-number.ts'
import type { Lease, Locks } from '../index.ts'
import { createLockWorker, type LockWorker, type WorkerState } from '../worker/index.ts'
import { lockKey } from './names.ts'
import type { AnyKey, PartitionSettings } from './options.ts'
import { partitionTopics } from './partition-events.ts'

/** A step of the work on one key, as that of a lock worker. */
export interface PartitionChange<Key extends string | number> {
  /** The key, or the number of the partition. */
  readonly key: Key
  /** What this process did for the key before. */
  readonly from: WorkerState
  /** What it does now. `stopped`: the key is none of its keys any more. */
  readonly to: WorkerState
  /** The lease that it holds, or is about to release. */
  readonly lease: Lease | undefined
}

/**
 * The keys of this process, each with a lock worker. The worker waits for the key, starts and stops the work, and tries again
 * after a loss or a failure. A key is named by its place in the list.
 */
export class OwnShare {
  readonly #locks: Locks
  readonly #name: string
  readonly #settings: PartitionSettings
  readonly #tell: (change: PartitionChange<AnyKey>) => void
  readonly #workers = new Map<number, LockWorker>()
  /** Of the workers, those that were stopped. Their work may not have ended. */
  readonly #leaving = new Set<number>()
  /** Of the workers, those whose work did not end within `grace`. The work may run for ever. */
  readonly #overdue = new Set<number>()
  #wanted = new Set<number>()
  /** Of the workers, those that wait for their turn to hand their key over. */
  readonly #unwanted = new Set<number>()
  #movesAtOnce: number
  #handsOverSoon = false
  #whenIdle: (() => void)[] = []
  #onOverdue: () => void = () => {}

  constructor(
    locks: Locks,
    name: string,
    settings: PartitionSettings,
    tell: (change: PartitionChange<AnyKey>) => void,
  ) {
    this.#locks = locks
    this.#name = name
    this.#settings = settings
    this.#tell = tell
    this.#movesAtOnce = settings.movesAtOnce
    // It is never started. It only checks the options that are those of the workers.
    this.#workerOf(settings.keys[0] ?? 0)
  }

  /** The keys that this process is to have. */
  get wanted(): readonly number[] {
    return [...this.#wanted]
  }

  /** The keys that this process cannot have, because its last work on them has not ended. Another process is to have them. */
  get overdue(): readonly number[] {
    return [...this.#overdue]
  }

  /** Calls the listener when a key becomes overdue, or is so no more. */
  onOverdue(listener: () => void): void {
    this.#onOverdue = listener
  }

  get held(): ReadonlyMap<AnyKey, Lease> {
    const held = new Map<AnyKey, Lease>()
    for (const [at, { lease }] of this.#workers) {
      if (lease !== undefined && isHeld(lease)) held.set(this.#keyAt(at), lease)
    }
    return held
  }

  /** Takes these keys, and hands over the others, some at a time. */
  want(keys: Iterable<number>): void {
    this.#wanted = new Set(Array.from(keys).filter((at) => !this.#overdue.has(at)))
    this.#settle()
  }

  /** Wants only the keys that it holds. The others may have been given to another process meanwhile. */
  wantHeld(): void {
    const held = Array.from(this.#workers).filter(([, { lease }]) => lease !== undefined && isHeld(lease))
    this.want(held.map(([at]) => at).filter((at) => this.#wanted.has(at)))
  }

  /** Hands over all keys. Resolves when no work is left, or each work that is left has had its grace. */
  async end(graceMs: number): Promise<void> {
    this.want([])
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, graceMs)
    })
    await Promise.race([this.#idle(), late])
    clearTimeout(timer)
    this.#movesAtOnce = Number.POSITIVE_INFINITY
    this.#settle()
    await Promise.all(Array.from(this.#workers.values(), (worker) => worker.stop()))
  }

  #settle(): void {
    for (const at of this.#wanted) {
      this.#unwanted.delete(at)
      if (!this.#workers.has(at)) this.#begin(at)
    }
    for (const at of this.#workers.keys()) {
      if (this.#wanted.has(at) || this.#leaving.has(at)) continue
      if (this.#isKept(at)) this.#unwanted.add(at)
      // To leave a queue moves nothing.
      else this.#stop(at)
    }
    this.#handOver()
  }

  /** Hands over unwanted keys, as many as may move at the same time. Counts once: this may be called for each of thousands of keys. */
  #handOver(): void {
    if (this.#workers.size === 0) for (const tell of this.#whenIdle.splice(0)) tell()
    if (this.#unwanted.size === 0) return
    let movesLeft = this.#movesAtOnce - this.#moving
    for (const at of this.#unwanted) {
      if (movesLeft <= 0) return
      // A key that was lost meanwhile is not handed over.
      if (this.#isKept(at)) movesLeft -= 1
      this.#stop(at)
    }
  }

  /** Not at once: many workers end in the same moment, also while `#handOver` goes through them. */
  #handOverSoon(): void {
    if (this.#handsOverSoon) return
    this.#handsOverSoon = true
    queueMicrotask(() => {
      this.#handsOverSoon = false
      this.#handOver()
    })
  }

  #stop(at: number): void {
    this.#unwanted.delete(at)
    // First, because a worker that only pauses is stopped by the time that `stop` returns.
    this.#leaving.add(at)
    void this.#workers.get(at)?.stop()
  }

  /** How many keys are being handed over. */
  get #moving(): number {
    let moving = 0
    for (const at of this.#leaving) if (this.#isKept(at)) moving += 1
    return moving
  }

  /** Whether this process holds the key and renews it. An overdue worker has a lease that runs out. */
  #isKept(at: number): boolean {
    const lease = this.#workers.get(at)?.lease
    return lease !== undefined && isHeld(lease) && !this.#overdue.has(at)
  }

  #begin(at: number): void {
    const key = this.#keyAt(at)
    const worker = this.#workerOf(key)
    this.#workers.set(at, worker)
    worker.subscribe(({ from, to, lease }) => {
      this.#tell({ key, from, to, lease })
      // A worker that has lost its key must not try for it again.
      if (to === 'pausing' && this.#unwanted.has(at)) this.#stop(at)
      if (to === 'overdue') this.#giveUp(at)
      if (to === 'stopped') this.#ended(at)
    })
    worker.start()
  }

  #workerOf(key: AnyKey): LockWorker {
    const { work, onError } = this.#settings
    const { ttl, backoff, maxBackoff, grace } = work
    // The number of the present term. A worker has one at a time.
    let run = 0
    return createLockWorker(this.#locks, lockKey(this.#name, key), {
      ...{ ttl, backoff, maxBackoff, grace },
      start: async (lease, { signal, fail }) => {
        const { fence } = lease
        run = nextRunNumber()
        await work.start({ key, lease, fence, signal, fail })
        if (partitionTopics.taken.isHeard) partitionTopics.taken.tell({ name: this.#name, key, fence, run })
      },
      stop: async (reason, lease) => {
        const { fence } = lease
        try {
          await work.stop({ key, lease, fence, reason })
        } finally {
          if (partitionTopics.given.isHeard)
            partitionTopics.given.tell({ name: this.#name, key, fence, run, reason })
        }
      },
      onError: (error, { during }) => onError(error, { key, during }),
    })
  }

  /** The worker no longer renews the lease, so another process can have the key. */
  #giveUp(at: number): void {
    this.#overdue.add(at)
    this.#wanted.delete(at)
    if (!this.#leaving.has(at)) this.#stop(at)
    this.#handOverSoon()
    this.#onOverdue()
  }

  /** Only now may the work on the key begin anew in this process. */
  #ended(at: number): void {
    const wasStopped = this.#leaving.delete(at)
    this.#workers.delete(at)
    this.#unwanted.delete(at)
    // A worker that ends by itself has found the locks closed.
    if (wasStopped && this.#wanted.has(at)) this.#begin(at)
    this.#handOverSoon()
    if (this.#overdue.delete(at)) this.#onOverdue()
  }

  #idle(): Promise<void> {
    if (this.#workers.size === 0) return Promise.resolve()
    return new Promise((resolve) => this.#whenIdle.push(resolve))
  }

  #keyAt(at: number): AnyKey {
    return this.#settings.keys[at] ?? at
  }
}

function isHeld({ state }: Lease): boolean {
  return state === 'held' || state === 'jeopardy'
}
