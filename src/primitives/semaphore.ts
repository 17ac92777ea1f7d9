import { checkObject, parseCount } from '../base/arguments.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import type { Lease } from '../engine/lease.ts'
import {
  type HoldRequest,
  hold,
  type LocksContext,
  type Outcome,
  promised,
  tryHold,
  tryWithHold,
  type Work,
  withHold,
} from './hold.ts'
import {
  type CallbackOptions,
  type HoldOptions,
  type HoldSettings,
  parseSettings,
  type Shape,
  TAKES,
  type TryCallbackOptions,
  type WaitOptions,
} from './options.ts'

/** How many permits one call takes, 1 to the semaphore's number. Default: 1. */
export interface Permits {
  /** How many permits, 1 to the semaphore's number. Default: 1. */
  readonly units?: number | undefined
}

/**
 * At most `permits` permits at a time, in order of arrival: calls for few do not overtake a call for many. During a deploy
 * processes may disagree about the number. Then the smallest number among the holders counts.
 *
 * Each holder has its own fence, and all of them are valid. A guard that admits only the highest fence would refuse the
 * others. So guard what a permit protects, and not the semaphore.
 */
export class Semaphore {
  /** The key whose permits are given out. */
  readonly key: string
  /** How many permits there are. */
  readonly permits: number
  readonly #context: LocksContext
  readonly #defaults: HoldSettings

  constructor(context: LocksContext, key: string, permits: number, defaults: HoldSettings) {
    this.#context = context
    this.key = key
    this.permits = parseCount('permits', permits, { least: 1, most: MOST_PERMITS })
    this.#defaults = defaults
  }

  /** Waits for the permits. Release the lease in `finally`, or with `await using`. */
  acquire(options?: WaitOptions & Permits): Promise<Lease> {
    return promised<Lease>(() => hold(this.#context, this.#request(options, TAKES_UNITS.wait)))
  }

  /** `null` when there are too few permits; never waits. */
  tryAcquire(options?: HoldOptions & Permits): Promise<Lease | null> {
    return promised<Lease | null>(() => tryHold(this.#context, this.#request(options, TAKES_UNITS.try)))
  }

  /** Waits for the permits, runs `work` while holding them, and gives them back. */
  withPermits<T>(work: Work<Lease, T>): Promise<T>
  withPermits<T>(options: (CallbackOptions & Permits) | undefined, work: Work<Lease, T>): Promise<T>
  async withPermits<T>(...rest: WorkArguments<CallbackOptions & Permits, Work<Lease, T>>): Promise<T> {
    const [options, work] = splitWork(rest)
    return withHold(this.#context, this.#request(options, TAKES_UNITS.callback), work)
  }

  /** Like {@link withPermits}, but never waits. */
  tryWithPermits<T>(work: Work<Lease, T>): Promise<Outcome<T>>
  tryWithPermits<T>(
    options: (TryCallbackOptions & Permits) | undefined,
    work: Work<Lease, T>,
  ): Promise<Outcome<T>>
  async tryWithPermits<T>(
    ...rest: WorkArguments<TryCallbackOptions & Permits, Work<Lease, T>>
  ): Promise<Outcome<T>> {
    const [options, work] = splitWork(rest)
    return tryWithHold(this.#context, this.#request(options, TAKES_UNITS.tryCallback), work)
  }

  #request(options: (CallbackOptions & Permits) | undefined, takes: ReadonlySet<string>): HoldRequest {
    return { key: this.key, shape: this.#shape(options), settings: this.#settings(options, takes) }
  }

  #shape(options: Permits | undefined): Shape {
    if (options !== undefined) checkObject(options)
    const units = options?.units
    return {
      units: units === undefined ? 1 : parseCount('units', units, { least: 1, most: this.permits }),
      limit: this.permits,
    }
  }

  #settings(options: (CallbackOptions & Permits) | undefined, takes: ReadonlySet<string>): HoldSettings {
    return parseSettings(options, takes, this.#defaults)
  }
}

const MOST_PERMITS = 1_000_000

const TAKES_UNITS = {
  wait: withUnits(TAKES.wait),
  try: withUnits(TAKES.try),
  callback: withUnits(TAKES.callback),
  tryCallback: withUnits(TAKES.tryCallback),
} as const

function withUnits(takes: ReadonlySet<string>): ReadonlySet<string> {
  return new Set([...takes, 'units'])
}
