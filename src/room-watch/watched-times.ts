/** A stretch of time in which the store was looked at all along. */
export interface WatchedTime {
  readonly fromAt: number
  readonly untilAt: number
}

/** The times in which somebody looked at the store. What lies between them is unknown. */
export class WatchedTimes {
  readonly #times: WatchedTime[]

  constructor(times: readonly WatchedTime[]) {
    this.#times = [...times]
  }

  /** Oldest first. A stretch that began before `at` begins then. */
  since(at: number): readonly WatchedTime[] {
    return this.#times.map((time) => ({ ...time, fromAt: Math.max(time.fromAt, at) }))
  }

  /** Adds a complete look, and returns the stretch that it belongs to. */
  look(at: number): WatchedTime {
    // The clock was set back: times after now say nothing.
    while ((this.#times.at(-1)?.fromAt ?? at) > at) this.#times.pop()
    const last = this.#times.at(-1)
    const isContinued = last !== undefined && at - last.untilAt <= LONGEST_PAUSE_MS
    const time = { fromAt: isContinued ? last.fromAt : at, untilAt: at }
    if (isContinued) this.#times.pop()
    this.#times.push(time)
    if (this.#times.length > MOST) this.#times.shift()
    return time
  }

  dropBefore(at: number): void {
    while ((this.#times[0]?.untilAt ?? at) < at) this.#times.shift()
  }
}

/** If more time than this lies between two looks, nobody has looked in between. A look at very many keys takes some seconds. */
export const LONGEST_PAUSE_MS = 15_000
const MOST = 1000
