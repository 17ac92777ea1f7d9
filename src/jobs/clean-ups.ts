/** Cleans up every half minute while a process has workers. */
export class CleanUps {
  readonly #cleanUp: () => Promise<void>
  readonly #onError: (error: unknown) => void
  #isStarted = false
  #timer: NodeJS.Timeout | undefined

  constructor(cleanUp: () => Promise<void>, onError: (error: unknown) => void) {
    this.#cleanUp = cleanUp
    this.#onError = onError
  }

  start(): void {
    this.#isStarted = true
    this.#cleanUpIn(Math.random() * EVERY_MS)
  }

  stop(): void {
    this.#isStarted = false
    clearTimeout(this.#timer)
  }

  #cleanUpIn(delayMs: number): void {
    // A clean-up that began before a stop and a new start ends with a call, too. There is one timer for both.
    clearTimeout(this.#timer)
    this.#timer = setTimeout(async () => {
      try {
        await this.#cleanUp()
      } catch (error) {
        // The next clean-up does it, or another process. If none can, the tables grow.
        if (this.#isStarted) this.#onError(error)
      }
      if (this.#isStarted) this.#cleanUpIn(EVERY_MS * (0.9 + Math.random() / 5))
    }, delayMs)
    this.#timer.unref()
  }
}

const EVERY_MS = 30_000
