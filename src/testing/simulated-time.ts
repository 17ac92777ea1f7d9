import type { Clock, Timer } from '../contract/clock.ts'

/**
 * Time that passes only when a test calls `advance`, with a queue of all events to come. Events run one after the other.
 * Before the next event, all promise callbacks that follow from the last one have run. So the same program has the same
 * history every time, and an hour takes only as long as its events.
 *
 * It is a {@link Clock} itself, which shows the true time. Each {@link SimulatedProcess} has a clock of its own, which may
 * run fast or slow, jump, or stand still.
 *
 * ```ts
 * import { SimulatedTime } from 'holdfast/testing'
 *
 * const time = new SimulatedTime()
 * time.startTimer(60_000, () => console.log('a minute has passed'))
 * await time.advance(3_600_000)
 * ```
 */
export class SimulatedTime implements Clock {
  #nowMs = 0
  #sequence = 0
  /** A binary heap: the parent of `i` at `(i - 1) >> 1` is never later. */
  readonly #events: Event[] = []

  monotonicMs(): number {
    return this.#nowMs
  }

  wallMs(): number {
    return EPOCH_MS + this.#nowMs
  }

  startTimer(delayMs: number, fire: () => void): Timer {
    this.#sequence += 1
    const event: Event = { at: this.#nowMs + Math.max(0, delayMs), sequence: this.#sequence, fire }
    this.#add(event)
    return {
      stop: () => {
        event.fire = undefined
      },
      keepAlive: () => {},
    }
  }

  /**
   * Lets time pass. Calls `afterEach` after every event and all promise callbacks that follow from it. Calls that overlap share the
   * time: each ends its own duration after the moment at which it was made.
   */
  async advance(durationMs: number, afterEach?: () => void): Promise<void> {
    const until = this.#nowMs + durationMs
    // The caller may have just started something: its promise callbacks run first.
    await undefined
    await settled()
    for (let event = this.#events[0]; event !== undefined && event.at <= until; event = this.#events[0]) {
      this.#removeFirst()
      if (event.fire === undefined) continue
      // A call that overlaps with this one may be ahead.
      this.#nowMs = Math.max(this.#nowMs, event.at)
      event.fire()
      await settled()
      afterEach?.()
    }
    this.#nowMs = Math.max(this.#nowMs, until)
  }

  #add(event: Event): void {
    const events = this.#events
    let index = events.push(event) - 1
    while (index > 0) {
      const above = (index - 1) >> 1
      const parent = events[above]
      if (parent === undefined || isBefore(parent, event)) break
      events[index] = parent
      index = above
    }
    events[index] = event
  }

  #removeFirst(): void {
    const events = this.#events
    const event = events.pop()
    if (event === undefined || events.length === 0) return
    let index = 0
    for (;;) {
      let below = 2 * index + 1
      let child = events[below]
      if (child === undefined) break
      const sibling = events[below + 1]
      if (sibling !== undefined && isBefore(sibling, child)) {
        below += 1
        child = sibling
      }
      if (isBefore(event, child)) break
      events[index] = child
      index = below
    }
    events[index] = event
  }
}

interface Event {
  readonly at: number
  readonly sequence: number
  /** `undefined` once the event was cancelled. */
  fire: (() => void) | undefined
}

function isBefore(one: Event, other: Event): boolean {
  return one.at < other.at || (one.at === other.at && one.sequence < other.sequence)
}

/**
 * Resolves when no promise callback is left, because only then Node.js runs its tick queue. Await it: in the main script,
 * ticks come before promise callbacks.
 */
function settled(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve))
}

/** 2027-01-15: any date will do, as long as it is always the same. */
const EPOCH_MS = 1_800_000_000_000
