/** How quickly a worker's jobs end, while at least one of them runs. Idle times do not count. */
export class Pace {
  #running = 0
  #busySince = 0
  /** Jobs that have ended, and the time that this took: mostly of the last {@link WINDOW_MS} of work. */
  #ended = 0
  #busyMs = FIRST_MS

  begun(): void {
    if (this.#running === 0) this.#busySince = performance.now()
    this.#running += 1
  }

  ended(): void {
    this.#ended += 1
    this.#running -= 1
    if (this.#running === 0) this.#count()
  }

  /** How many jobs are likely to end within a time. */
  endWithin(ms: number): number {
    if (this.#running > 0) this.#count()
    return (this.#ended / this.#busyMs) * ms
  }

  #count(): void {
    const at = performance.now()
    this.#busyMs += at - this.#busySince
    this.#busySince = at
    if (this.#busyMs <= WINDOW_MS) return
    this.#ended *= WINDOW_MS / this.#busyMs
    this.#busyMs = WINDOW_MS
  }
}

const WINDOW_MS = 100

/** As if the first job had taken so long: a few jobs that end at once do not show yet that hundreds will. */
const FIRST_MS = 10
