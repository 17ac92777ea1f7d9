import { type Actor, createActor } from 'xstate'
import { expected, parseFunction } from '../base/arguments.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import { callListener } from '../base/listener.ts'
import { ClosedError } from '../errors.ts'
import type { Lease, Locks } from '../index.ts'
import { KeyLock } from './key-lock.ts'
import type { WorkerLease } from './lock.ts'
import { lockWorkerMachine } from './machine/machine.ts'
import type { LockWorkerMachine, LockWorkerStateValue } from './machine/signature.ts'
import { type LockWorkerOptions, type LockWorkerSettings, parseOptions, warn } from './options.ts'
import { type ShutdownSignal, stopOnSignals } from './shutdown.ts'
import { TermTeller } from './worker-events.ts'

/**
 * What a worker is doing.
 *
 * - `idle`: it was not started yet.
 * - `trying`: it asks whether the key is free.
 * - `waiting`: it is queued for the key.
 * - `leaving`: it was stopped before it had the key, and gives up its place in the queue.
 * - `starting`: it holds the key, and the promise of `start` is pending.
 * - `working`: it holds the key, and the work runs.
 * - `jeopardy`: as `working`, but a renewal has failed or is overdue.
 * - `stopping`: the work is to end, because the worker was stopped, the lease was lost, or the work has failed.
 * - `overdue`: the work did not end within `grace`. The worker starts nothing else before it has ended.
 * - `releasing`: the work has ended, and the worker releases the key.
 * - `pausing`: it waits for `backoff` after a loss or a failure.
 * - `stopped`: it was stopped, and tries no more.
 */
export type WorkerState =
  | 'idle'
  | 'trying'
  | 'waiting'
  | 'leaving'
  | 'starting'
  | 'working'
  | 'jeopardy'
  | 'stopping'
  | 'overdue'
  | 'releasing'
  | 'pausing'
  | 'stopped'

/** A step of a worker from one state to another. */
export interface WorkerChange {
  /** What the worker did before. */
  readonly from: WorkerState
  /** What it does now. */
  readonly to: WorkerState
  /** The lease that the worker holds, or is about to release. */
  readonly lease: Lease | undefined
}

/** See {@link createLockWorker}. */
export interface LockWorker extends AsyncDisposable {
  /** The key that the worker holds while it works. */
  readonly key: string
  /** What the worker does now. */
  readonly state: WorkerState
  /**
   * The lease that the worker holds, from before `start` is called until the lease is released. It is for reading: the
   * worker releases it.
   */
  readonly lease: Lease | undefined
  /**
   * Starts to try for the key. A second call changes nothing. From now on the process stays alive until the worker is
   * stopped. The worker and its work run outside of the caller's async context (`AsyncLocalStorage`).
   *
   * @throws {ClosedError} after `stop()`: make a new worker.
   */
  start(): void
  /**
   * Ends the work, releases the key, and tries no more. Resolves when all of that is done, or when `grace` is over;
   * never rejects. A second call waits for the same end. Do not await it in this worker's own `start` or `stop`: it
   * waits for them.
   */
  stop(): Promise<void>
  /**
   * Calls `stop()` at the first of these signals, so that another process takes over within milliseconds. Further
   * signals change nothing. Afterwards the signal ends the process as usual. If your program listens to the signal,
   * too, your program decides when the process ends. Default: SIGTERM and SIGINT.
   *
   * @throws {InvalidArgumentError} when `signals` has a signal that is no {@link ShutdownSignal}.
   */
  stopOn(signals?: readonly ShutdownSignal[]): void
  /** Calls the listener at each change of `state`, in order. Returns a function that ends this. */
  subscribe(listener: (change: WorkerChange) => void): () => void
}

/**
 * Keeps one piece of work running in one process of many: the process that holds the key works, the others wait in the
 * queue of the key. If the holder is stopped, another process takes over within milliseconds. If the holder crashes,
 * another one takes over within the ttl. A worker that lost its key ends its work and tries again.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { createLockWorker } from 'holdfast/worker'
 *
 * const locks = await connect('redis://localhost:6379', { ttl: '10s' })
 * let timer: NodeJS.Timeout | undefined
 * const worker = createLockWorker(locks, 'mailer', {
 *   start(lease) {
 *     timer = setInterval(() => console.log('sends mail under fence', lease.fence), 1000)
 *   },
 *   stop() {
 *     clearInterval(timer)
 *   },
 * })
 * worker.stopOn(['SIGTERM', 'SIGINT'])
 * worker.start()
 * ```
 *
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createLockWorker(locks: Locks, key: string, options: LockWorkerOptions): LockWorker {
  if (typeof locks?.tryAcquire !== 'function') {
    throw expected('locks', 'what createLocks(…) or connect(…) returns', locks)
  }
  // Checks the key without making a lock.
  locks.readWrite(key)
  return new LockWorkerOverLocks(locks, key, parseOptions(options))
}

class LockWorkerOverLocks implements LockWorker {
  readonly key: string
  readonly #actor: Actor<LockWorkerMachine>
  readonly #listeners = new Set<(change: WorkerChange) => void>()
  #seen: WorkerState = 'idle'
  #alive: NodeJS.Timeout | undefined
  #atEnd: (() => void)[] = []

  constructor(locks: Locks, key: string, settings: LockWorkerSettings) {
    this.key = key
    const { hold, onError, clock, start, stop, graceMs, backoffMs, maxBackoffMs } = settings
    const teller = new TermTeller(key)
    this.#actor = createActor(lockWorkerMachine, {
      ...(clock === undefined ? {} : { clock: clock as Actor<LockWorkerMachine>['clock'] }),
      input: {
        grace: graceMs,
        backoff: backoffMs,
        maxBackoff: maxBackoffMs,
        lock: new KeyLock(locks, key, hold),
        start: (lease, term) => teller.start(ofLocks(lease), () => start(ofLocks(lease), term)),
        stop: (reason, lease) => teller.stop(reason, ofLocks(lease), () => stop(reason, ofLocks(lease))),
        chance: Math.random,
      },
    })
    this.#actor.on('trouble', ({ during, error }) => onError(error, { key, during }))
    this.#actor.subscribe({
      next: () => this.#seeChange(),
      error: (error) => {
        onError(error, { key, during: 'work' })
        this.#letEnd()
      },
    })
    this.#actor.start()
  }

  get state(): WorkerState {
    return stateOf(this.#actor.getSnapshot().value)
  }

  get lease(): Lease | undefined {
    const { term } = this.#actor.getSnapshot().context
    return term === undefined ? undefined : ofLocks(term.lease)
  }

  start(): void {
    if (this.state === 'stopped' || this.#isStopping) {
      throw new ClosedError('Expected a worker that was not stopped, got one that was. Make a new one.', {
        key: this.key,
      })
    }
    this.#alive ??= setInterval(() => {}, LONG_MS)
    // The scope of a lock around this call does not wait for the worker.
    outsideOfCallers(() => this.#actor.send({ type: 'start' }))
  }

  async stop(): Promise<void> {
    if (this.state !== 'stopped') this.#actor.send({ type: 'stop' })
    if (!this.#isAtEnd) await new Promise<void>((resolve) => this.#atEnd.push(resolve))
  }

  stopOn(signals: readonly ShutdownSignal[] = ['SIGTERM', 'SIGINT']): void {
    const ignore = stopOnSignals(signals, () => this.stop())
    if (this.#isAtEnd) ignore()
    else this.#atEnd.push(ignore)
  }

  subscribe(listener: (change: WorkerChange) => void): () => void {
    parseFunction('listener', listener)
    // A new function each time, because a program may add the same listener twice.
    const own = (change: WorkerChange) => listener(change)
    this.#listeners.add(own)
    return () => {
      this.#listeners.delete(own)
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  get #isStopping(): boolean {
    return this.#actor.getSnapshot().context.isStopping
  }

  /** The end of the worker does not wait for it any more. */
  get #isAtEnd(): boolean {
    const { status } = this.#actor.getSnapshot()
    return status !== 'active' || (this.state === 'overdue' && this.#isStopping)
  }

  #seeChange(): void {
    const from = this.#seen
    const to = this.state
    this.#seen = to
    if (from !== to) this.#tell(from, to)
    if (this.#isAtEnd) this.#letEnd()
  }

  #tell(from: WorkerState, to: WorkerState): void {
    const change = { from, to, lease: this.lease }
    for (const listener of this.#listeners) {
      callListener(
        () => listener(change),
        (error) => warn(`A listener of the worker on ${JSON.stringify(this.key)} failed.`, error),
      )
    }
  }

  #letEnd(): void {
    clearInterval(this.#alive)
    for (const end of this.#atEnd.splice(0)) end()
  }
}

const LONG_MS = 2 ** 30

/** The machine knows only the part of a lease that it needs. All leases of this worker come from its own locks. */
function ofLocks(lease: WorkerLease): Lease {
  return lease as Lease
}

function stateOf(value: LockWorkerStateValue): WorkerState {
  if (typeof value === 'string') return value
  const { lease, work, term } = value.working
  if (term === 'overdue') return 'overdue'
  if (term === 'ending') return 'stopping'
  if (work === 'starting') return 'starting'
  return typeof lease === 'object' && lease.kept === 'jeopardy' ? 'jeopardy' : 'working'
}
