import type { Clock, Timer } from '../contract/clock.ts'

/** How a clock deviates from the true time. */
export interface SimulatedClockOptions {
  /** The true time, from which this clock deviates. */
  readonly time: Clock
  /** How fast it runs: 1.0025 gains 2.5 ms a second. Default: 1. */
  readonly rate?: number
  /** How far ahead the wall clock is at the start, in milliseconds. Default: 0. */
  readonly aheadMs?: number
  /** How late the next timer fires, in milliseconds of true time. As in Node.js, it may be 1 ms early. Default: on time. */
  readonly lateness?: () => number
  /** Runs the callback of a timer. A process that is paused does that later. Default: at once. */
  readonly deliver?: (act: () => void) => void
}

/**
 * The clocks of one machine, on simulated time. They may run fast or slow, jump, or stand still. A timer of 0 ms takes no
 * time. So code that starts such timers in a loop never reaches a later time, and a test sees that as a busy loop.
 *
 * ```ts
 * import { SimulatedClock, SimulatedTime } from 'holdfast/testing'
 *
 * const time = new SimulatedTime()
 * const clock = new SimulatedClock({ time, rate: 0.9975 })
 * clock.jump(3_600_000)
 * console.log(clock.wallMs() - time.wallMs())
 * ```
 */
export class SimulatedClock implements Clock {
  readonly #time: Clock
  readonly #rate: number
  readonly #lateness: () => number
  readonly #deliver: (act: () => void) => void
  readonly #running = new Set<Timer>()
  /** What the clocks showed at the true time `#since`. */
  #monotonic = 1000
  #wall: number
  #since: number
  #still = false

  constructor(options: SimulatedClockOptions) {
    this.#time = options.time
    this.#rate = options.rate ?? 1
    this.#lateness = options.lateness ?? (() => 0)
    this.#deliver = options.deliver ?? ((act) => act())
    this.#wall = options.time.wallMs() + (options.aheadMs ?? 0)
    this.#since = options.time.monotonicMs()
  }

  /** How fast it runs, compared with the true time. */
  get rate(): number {
    return this.#rate
  }

  /** How many timers are running. */
  get timers(): number {
    return this.#running.size
  }

  monotonicMs(): number {
    return this.#still ? this.#monotonic : this.#monotonic + this.#elapsed()
  }

  wallMs(): number {
    return this.#wall + this.#elapsed()
  }

  startTimer(delayMs: number, fire: () => void): Timer {
    const firesAt = this.monotonicMs() + delayMs
    let waiting: Timer
    const timer: Timer = {
      stop: () => {
        waiting.stop()
        this.#running.delete(timer)
      },
      keepAlive: () => {},
    }
    const wait = (latenessMs: number): void => {
      const trueMs = (firesAt - this.monotonicMs()) / this.#rate + latenessMs
      waiting = this.#time.startTimer(trueMs, () => this.#deliver(ring))
    }
    const ring = (): void => {
      // The timer was stopped while the process was paused, or the clock has stood still meanwhile.
      if (!this.#running.has(timer)) return
      if (this.monotonicMs() < firesAt - MOST_EARLY_MS) return wait(0)
      this.#running.delete(timer)
      fire()
    }
    this.#running.add(timer)
    wait(Math.max(-MOST_EARLY_MS, this.#lateness()))
    return timer
  }

  /** Sets the wall clock forward or back. */
  jump(byMs: number): void {
    this.#rebase()
    this.#wall += byMs
  }

  /** Suspends the machine: the monotonic clock stands still, and the wall clock goes on. */
  standStill(): void {
    this.#rebase()
    this.#still = true
  }

  /** Ends {@link standStill}: the monotonic clock runs again. */
  goOn(): void {
    this.#rebase()
    this.#still = false
  }

  #elapsed(): number {
    return (this.#time.monotonicMs() - this.#since) * this.#rate
  }

  #rebase(): void {
    this.#monotonic = this.monotonicMs()
    this.#wall = this.wallMs()
    this.#since = this.#time.monotonicMs()
  }
}

/** As in Node.js, timers count whole milliseconds of a clock that is read once per turn of the event loop. */
const MOST_EARLY_MS = 1
