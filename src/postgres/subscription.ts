import { type Backoff, backoffMs } from '../base/backoff.ts'
import { StoreError } from '../errors.ts'
import type { PostgresConnection } from './connection.ts'
import { quoteIdentifier } from './identifiers.ts'

export interface ChannelListener {
  onMessage(payload: string): void
  /** After a loss of the connection messages flow again. Some may have been missed in between. */
  onResubscribed(): void
  /** A statement that each new session runs together with LISTEN. It takes a lock that lasts as long as the session. */
  readonly presence?: string
}

/** Messages of one channel. When its connection is lost, the subscription opens another one, until it is closed. */
export interface ChannelSubscription {
  /** Whether messages flow, as far as this process knows. */
  readonly isOpen: boolean
  /**
   * Sends something on this connection, at most every few seconds. If no answer comes, the connection is replaced. Only the
   * side that sends notices a lost route, and a connection that listens sends nothing by itself.
   */
  probe(): void
  close(): void
}

/** Resolves once messages flow, and rejects when they cannot. After that the subscription never gives up. */
export async function subscribe(
  channel: string,
  listener: ChannelListener,
  open: () => Promise<PostgresConnection>,
): Promise<ChannelSubscription> {
  const listen = `listen ${quoteIdentifier(channel)}`
  const begin = listener.presence === undefined ? listen : `${listen}; ${listener.presence}`
  const connect = async (): Promise<PostgresConnection> => {
    const connection = await open()
    try {
      if (connection.isPooled) throw new StoreError('store-refused', POOLED)
      connection.session.onMessage((from, payload) => {
        if (from === channel) listener.onMessage(payload)
      })
      await connection.ask(begin, [])
      return connection
    } catch (error) {
      connection.session.close()
      throw error
    }
  }
  return new LastingSubscription(await connect(), {
    connect,
    listen,
    onResubscribed: () => listener.onResubscribed(),
  })
}

interface SubscriptionParts {
  /** Opens a connection that listens. */
  readonly connect: () => Promise<PostgresConnection>
  /** The statement of a probe. To listen once more changes nothing. */
  readonly listen: string
  readonly onResubscribed: () => void
}

class LastingSubscription implements ChannelSubscription {
  readonly #parts: SubscriptionParts
  #connection: PostgresConnection
  #isClosed = false
  #pause: NodeJS.Timeout | undefined
  #probeAt = 0

  constructor(connection: PostgresConnection, parts: SubscriptionParts) {
    this.#connection = connection
    this.#parts = parts
    this.#watch()
  }

  get isOpen(): boolean {
    return !this.#connection.isLost
  }

  probe(): void {
    const now = performance.now()
    if (this.#connection.isLost || now < this.#probeAt) return
    this.#probeAt = now + PROBE_EVERY_MS
    // A connection without an answer closes itself. The subscription then replaces it, as after any other loss.
    this.#connection.ask(this.#parts.listen, []).catch(() => {})
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#pause)
    this.#connection.session.close()
  }

  #watch(): void {
    void this.#connection.session.closed.then(() => {
      if (!this.#isClosed) this.#resubscribe(1)
    })
  }

  #resubscribe(attempt: number): void {
    const pauseMs = backoffMs(RECONNECTING, attempt)
    this.#pause = setTimeout(async () => {
      try {
        this.#connection = await this.#parts.connect()
      } catch {
        if (!this.#isClosed) this.#resubscribe(attempt + 1)
        return
      }
      if (this.#isClosed) return this.#connection.session.close()
      this.#watch()
      this.#parts.onResubscribed()
    }, pauseMs)
    this.#pause.unref()
  }
}

const POOLED =
  'A pooler stands between us and PostgreSQL, and LISTEN does not work behind one. Connect directly, or do without.'

/** The cost does not show beside waiters, which ask every two seconds. */
const PROBE_EVERY_MS = 5000

/** Long enough for a server that restarts, short enough for a lease of some seconds. Jittered, because all clients return at once. */
const RECONNECTING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.25 }
