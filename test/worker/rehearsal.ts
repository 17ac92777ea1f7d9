import { type Actor, createActor, SimulatedClock } from 'xstate'
import type { StopReason, WorkerTerm } from '../../src/worker/index.ts'
import {
  type LockWorkerInput,
  type LockWorkerMachine,
  lockWorkerMachine,
  type WorkerLease,
  type WorkerLock,
  type WorkerTrouble,
} from '../../src/worker/machine/index.ts'

/** A promise that the test settles. */
export class Open<T = void> {
  resolve: (value: T) => void = () => {}
  reject: (error: unknown) => void = () => {}
  readonly promise: Promise<T> = new Promise((resolve, reject) => {
    this.resolve = resolve
    this.reject = reject
  })
}

/** Records the machine's requests to the lock, and how the lease was ended. */
export class Ask extends Open<WorkerLease | null> {
  readonly verb: 'tryAcquire' | 'acquire'
  readonly signal: AbortSignal

  constructor(verb: Ask['verb'], signal: AbortSignal) {
    super()
    this.verb = verb
    this.signal = signal
  }
}

export class PlayedLease implements WorkerLease {
  readonly loss = new AbortController()
  readonly signal: AbortSignal = this.loss.signal
  state = 'held'
  remainingMs = 8000
  released = 0
  detached = 0
  releasing: Promise<void> | undefined

  release(): Promise<void> {
    this.released += 1
    return this.releasing ?? Promise.resolve()
  }

  detach(): void {
    this.detached += 1
  }

  lose(error: unknown = new Error('lost')): void {
    this.state = 'lost'
    this.loss.abort(error)
  }
}

export interface Start extends Open {
  readonly lease: WorkerLease
  readonly term: WorkerTerm
}

export interface Stop extends Open {
  readonly reason: StopReason
  readonly lease: WorkerLease
}

/** The machine. The test plays its clock, its lock and its work. */
export class Rehearsal {
  readonly clock = new SimulatedClock()
  readonly asks: Ask[] = []
  readonly starts: Start[] = []
  readonly stops: Stop[] = []
  readonly troubles: WorkerTrouble[] = []
  readonly actor: Actor<LockWorkerMachine>
  chance = 1
  /** The next call of `start` throws this error synchronously. */
  refusal: unknown

  constructor({
    left,
    ...times
  }: Partial<Pick<LockWorkerInput, 'grace' | 'backoff' | 'maxBackoff'>> & Pick<WorkerLock, 'left'> = {}) {
    const ask = (verb: Ask['verb'], signal: AbortSignal): Ask => {
      const asked = new Ask(verb, signal)
      this.asks.push(asked)
      return asked
    }
    const lock: WorkerLock = {
      tryAcquire: (signal) => ask('tryAcquire', signal).promise,
      acquire: (signal) => ask('acquire', signal).promise as Promise<WorkerLease>,
      ...(left === undefined ? {} : { left }),
    }
    this.actor = createActor(lockWorkerMachine, {
      clock: this.clock,
      input: {
        lock,
        start: (lease, term) => {
          if (this.refusal !== undefined) throw this.refusal
          const start = Object.assign(new Open(), { lease, term })
          this.starts.push(start)
          return start.promise
        },
        stop: (reason, lease) => {
          const stop = Object.assign(new Open(), { reason, lease })
          this.stops.push(stop)
          return stop.promise
        },
        grace: 10_000,
        backoff: 1000,
        maxBackoff: 30_000,
        chance: () => this.chance,
        ...times,
      },
    })
    this.actor.on('trouble', (trouble) => this.troubles.push(trouble))
    this.actor.start()
  }

  get value(): unknown {
    return this.actor.getSnapshot().value
  }

  get work(): unknown {
    const { value } = this.actor.getSnapshot()
    return typeof value === 'string' ? value : value.working
  }

  get ask(): Ask {
    return last(this.asks)
  }

  get start(): Start {
    return last(this.starts)
  }

  get stop(): Stop {
    return last(this.stops)
  }

  begin(): void {
    if (this.value !== 'stopped') this.actor.send({ type: 'start' })
  }

  end(): void {
    // XState warns of events that come too late.
    if (this.value !== 'stopped') this.actor.send({ type: 'stop' })
  }

  /** Answers the open question with a lease. */
  async grant(lease: PlayedLease = new PlayedLease()): Promise<PlayedLease> {
    this.ask.resolve(lease)
    await turn()
    return lease
  }

  /** Goes on until the work runs under a new lease. */
  async startedWork(): Promise<PlayedLease> {
    this.begin()
    const lease = await this.grant()
    this.start.resolve()
    await turn()
    return lease
  }

  async refuse(error: unknown): Promise<void> {
    this.ask.reject(error)
    await turn()
  }

  async pass(ms: number): Promise<void> {
    this.clock.increment(ms)
    await turn()
  }
}

/** Resolves after everything that follows without time passing. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function last<T>(list: readonly T[]): T {
  const item = list.at(-1)
  if (item === undefined) throw new Error('Nothing of the kind has happened yet')
  return item
}
