import { StoreError } from '../../../errors.ts'
import type { RawConnection } from './client-link.ts'

/**
 * Makes grants wait until the configured number of replicas has them. `WAIT` covers the earlier writes of its connection, and
 * blocks the later ones. So it is sent right after the scripts of a tick, and one at a time. Scripts that come meanwhile share
 * the next `WAIT`. So absent replicas cost one time limit, and not one per request.
 *
 * - A renewal waits, too: a deadline that only the old master knows does not hold on the new one. An old master without
 *   replicas can therefore not keep its holders beyond their deadline.
 * - A hand-over is covered when the admitted ticket confirms.
 * - A release does not wait. If it is lost, the key stays taken until the ttl is over.
 *
 * A grant that has not reached enough replicas is not undone here. Its effect is unknown, as if the reply were lost. If the
 * client asks again under the same id, the ticket keeps its place and goes on once the replicas are back. If the client gives
 * up, it releases the ticket. To undo the grant here could undo one that a later request of the ticket has reported.
 */
export class Replication {
  readonly #replicas: number
  /** The next `WAIT`, for the writes since the last one was sent. */
  #next: Later | undefined
  #waiting = false
  /** Counts lost connections: what was written on one is not covered by a WAIT on the next one. */
  #generation = 0

  constructor(replicas: number) {
    this.#replicas = replicas
  }

  /** The reply to a script that was just written to this connection, once what it granted is replicated. */
  async cover(reply: Promise<unknown>, connection: RawConnection): Promise<unknown> {
    const reached = this.#reached(connection)
    // A rejection does not matter if nothing was granted.
    reached.catch(() => {})
    const text = await reply
    if (!hasGranted(text)) return text
    const got = await reached
    if (got >= this.#replicas) return text
    throw new NotReplicatedError(text, { got, wanted: this.#replicas })
  }

  /** The connection was lost. The next writes go to another one. */
  lost(): void {
    this.#generation += 1
    this.#waiting = false
    this.#next?.reject(new Error(LOST))
    this.#next = undefined
  }

  #reached(connection: RawConnection): Promise<number> {
    if (this.#next === undefined) {
      const next = later(connection)
      this.#next = next
      if (!this.#waiting) queueMicrotask(() => this.#wait(next))
    }
    return this.#next.promise
  }

  #wait(next: Later): void {
    // The connection may have been lost in between.
    if (this.#next !== next) return
    this.#next = undefined
    this.#waiting = true
    const generation = this.#generation
    const { connection, resolve, reject } = next
    connection.send('WAIT', [String(this.#replicas), String(WAIT_LIMIT_MS)]).then(
      (got) => {
        if (generation !== this.#generation) return reject(new Error(LOST))
        resolve(Number(got))
        this.#continue()
      },
      (error: unknown) => {
        reject(error)
        if (generation === this.#generation) this.#continue()
      },
    )
  }

  #continue(): void {
    this.#waiting = false
    if (this.#next !== undefined) this.#wait(this.#next)
  }
}

/** Some of what a script granted may be lost in a fail-over. */
export class NotReplicatedError extends Error {
  override readonly name = 'NotReplicatedError'
  /** The reply of the script. Everything in it but the grants is true all the same. */
  readonly reply: unknown
  readonly #counts: { readonly got: number; readonly wanted: number }

  constructor(reply: unknown, counts: { readonly got: number; readonly wanted: number }) {
    super('Too few replicas have it')
    this.reply = reply
    this.#counts = counts
  }

  asStoreError(key: string | undefined): StoreError {
    const { got, wanted } = this.#counts
    return new StoreError(
      'store-unavailable',
      `The grant had reached ${got} replicas after ${WAIT_LIMIT_MS} ms, and the option \`replicas\` asks for ${wanted}. Check that they run and follow the Redis server.`,
      { key },
    )
  }
}

/** Less than half of what a request may take, so that there is time to ask again. */
export const WAIT_LIMIT_MS = 500

const LOST = 'The connection was lost before the replicas had it'

/**
 * Whether the reply has a line of a ticket that holds, which begins with an h. A script that grants nothing does not
 * wait for replicas.
 */
function hasGranted(reply: unknown): boolean {
  return typeof reply === 'string' && (reply[0] === 'h' || reply.includes('\nh'))
}

interface Later {
  readonly connection: RawConnection
  readonly promise: Promise<number>
  readonly resolve: (got: number) => void
  readonly reject: (error: unknown) => void
}

function later(connection: RawConnection): Later {
  let resolve: Later['resolve'] = () => {}
  let reject: Later['reject'] = () => {}
  const promise = new Promise<number>((...settle) => {
    ;[resolve, reject] = settle
  })
  return { connection, promise, resolve, reject }
}
