import type { Clock, Timer } from '../../../contract/clock.ts'

/** A timer that fires at the earliest of the instants that it was set to. It does not keep the process alive. */
export class Alarm {
  readonly #clock: Clock
  readonly #fire: () => void
  #timer: Timer | undefined
  #at = Number.POSITIVE_INFINITY
  #isClosed = false

  constructor(clock: Clock, fire: () => void) {
    this.#clock = clock
    this.#fire = fire
  }

  /** Fires at this instant of the monotonic clock, or sooner. Infinity: not at all. */
  by(at: number): void {
    if (at >= this.#at || this.#isClosed) return
    this.#timer?.stop()
    this.#at = at
    const delayMs = Math.max(1, Math.ceil(at - this.#clock.monotonicMs()))
    this.#timer = this.#clock.startTimer(delayMs, () => {
      this.#at = Number.POSITIVE_INFINITY
      this.#fire()
    })
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.stop()
  }
}
