import type { JobTables } from './job-tables.ts'

interface CleanUpOptions {
  /** How long completed jobs are kept, in ms. */
  readonly completedMs: number
  /** How long the other jobs that have ended are kept, in ms. */
  readonly endedMs: number
  readonly onError: (error: unknown) => void
}

type CleanedTables = Pick<JobTables, 'tidy' | 'unblockStuck'>

/** Cleans up every half minute while a process has workers. */
export class CleanUps {
  readonly #tables: CleanedTables
  readonly #options: CleanUpOptions
  /** The last group that was looked at. There may be very many, so the next clean-up goes on after it. */
  #seenGroup: string | null = null
  #isStarted = false
  #timer: NodeJS.Timeout | undefined

  constructor(tables: CleanedTables, options: CleanUpOptions) {
    this.#tables = tables
    this.#options = options
  }

  async cleanUp(): Promise<void> {
    const { completedMs, endedMs } = this.#options
    while (await this.#tables.tidy(completedMs, endedMs));
    const until = performance.now() + GROUPS_MS
    do {
      this.#seenGroup = await this.#tables.unblockStuck(this.#seenGroup)
    } while (this.#seenGroup !== null && performance.now() < until)
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
        await this.cleanUp()
      } catch (error) {
        // The next clean-up does it, or another process. If none can, the tables grow.
        if (this.#isStarted) this.#options.onError(error)
      }
      if (this.#isStarted) this.#cleanUpIn(EVERY_MS * (0.9 + Math.random() / 5))
    }, delayMs)
    this.#timer.unref()
  }
}

const EVERY_MS = 30_000
/** For so long a clean-up begins to look at further groups. */
const GROUPS_MS = 500
