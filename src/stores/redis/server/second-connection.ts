import { type RawConnection, SILENCE_MS } from './client-link.ts'
import { isMissingRight } from './failures.ts'

/**
 * Finds out whether a silent connection is dead, or the server hangs: opens a second connection beside it. If the server answers on
 * the second connection alone, the first one is dead. If the server hangs, both are silent. Then further connections would gain
 * nothing, so there is one in {@link SILENCE_MS} at most.
 */
export class SecondConnection {
  readonly #open: () => RawConnection
  #connection: RawConnection | undefined
  #openedAt = Number.NEGATIVE_INFINITY

  constructor(open: () => RawConnection) {
    this.#open = open
  }

  get isOpen(): boolean {
    return this.#connection !== undefined
  }

  /** `onAnswers`: called if the server answers on the second connection, which is closed if nobody takes it. */
  try(onAnswers: () => void): void {
    const now = performance.now()
    if (this.#connection !== undefined || now - this.#openedAt < SILENCE_MS) return
    const connection = this.#open()
    this.#connection = connection
    this.#openedAt = now
    void answersTwice(connection).then((answers) => {
      if (this.#connection !== connection) return
      if (answers) onAnswers()
      this.close()
    })
  }

  /** The second connection, if it is open. From now on it belongs to the caller. */
  take(): RawConnection | undefined {
    const connection = this.#connection
    this.#connection = undefined
    return connection
  }

  /** Repeatable. */
  close(): void {
    this.take()?.close()
  }
}

/**
 * Whether the server answers two requests in a row. It reads its connections in turn. So before its second answer it has read what was
 * sent on others, however late it is. A script is held back where scripts are, as in a fail-over, and a PING is not.
 */
async function answersTwice(connection: RawConnection): Promise<boolean> {
  for (let answers = 0; answers < 2; answers += 1) {
    try {
      await connection.send('EVAL', ['return 1', '0'])
    } catch (error) {
      // A user that may only read gets this answer.
      if (!isMissingRight(connection.reasonOf(error))) return false
    }
  }
  return true
}

/**
 * A connection that is silent for this long may be dead. A lease of two seconds that was to be renewed meanwhile has time left for a
 * second connection.
 */
export const SUSPICION_MS = 500
