import type { Clock } from '../contract/clock.ts'

/** Work for many tickets, done a few tickets at a time. */
export interface StepwiseWork {
  /** Does the next part, which takes some microseconds. Returns whether there is more. */
  step(): boolean
  /** What is left is done later, by further steps. Called once, to do now what must not wait. */
  postponed?(): void
}

/**
 * Spreads work over turns of the event loop. What fits into the turn in which it comes is done at once.
 *
 * It does not know when a turn ends, because that would take a timer for each piece of work. So pieces that follow one
 * another within {@link PAUSE_MS} count as one turn. At worst, a piece then waits for a turn that has come already.
 */
export class Backlog {
  readonly #clock: Clock
  readonly #works = new Set<StepwiseWork>()
  #since = Number.NEGATIVE_INFINITY
  #lookedAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get isEmpty(): boolean {
    return this.#works.size === 0
  }

  /** Does what fits into this turn, and keeps the rest for {@link goOn}. `at`: now, on the monotonic clock. */
  begin(work: StepwiseWork, at: number): void {
    const isFirst = this.#works.size === 0
    // Added before its first step, because a listener that is called in a step may have the rest done at once.
    this.#works.add(work)
    if (isFirst) {
      if (at - this.#lookedAt > PAUSE_MS) this.#since = at
      this.#lookedAt = at
      while (this.#lookedAt - this.#since < TURN_MS) {
        if (!work.step()) {
          this.#works.delete(work)
          return
        }
        this.#lookedAt = this.#clock.monotonicMs()
      }
    }
    work.postponed?.()
  }

  /** Does all of this work now. */
  do(work: StepwiseWork): void {
    this.#works.add(work)
    while (work.step());
    this.#works.delete(work)
  }

  /** Another turn has come. */
  goOn(): void {
    this.#since = this.#clock.monotonicMs()
    for (const work of this.#works) {
      do {
        if (!work.step()) this.#works.delete(work)
        this.#lookedAt = this.#clock.monotonicMs()
        if (this.#lookedAt - this.#since >= TURN_MS) return
      } while (this.#works.has(work))
    }
  }

  /** Does all of it now. */
  finish(): void {
    for (const work of this.#works) this.do(work)
  }
}

/** How long it may hold the event loop. A round of the renewal loop in the same turn may hold it for another 3 ms. */
const TURN_MS = 2
/** Longer than the client of a store works between two answers that arrive together. */
const PAUSE_MS = 1
