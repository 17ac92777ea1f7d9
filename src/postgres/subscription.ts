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
  let connection = await opened()
  let isClosed = false
  let pause: NodeJS.Timeout | undefined
  let probeAt = 0
  watch()
  return {
    get isOpen() {
      return !connection.isLost
    },
    probe() {
      const now = performance.now()
      if (connection.isLost || now < probeAt) return
      probeAt = now + PROBE_EVERY_MS
      // A connection without an answer closes itself. The subscription then replaces it, as after any other loss.
      connection.ask(listen, []).catch(() => {})
    },
    close() {
      isClosed = true
      clearTimeout(pause)
      connection.session.close()
    },
  }

  async function opened(): Promise<PostgresConnection> {
    const fresh = await open()
    try {
      if (fresh.isPooled) throw new StoreError('store-refused', POOLED)
      fresh.session.onMessage((from, payload) => {
        if (from === channel) listener.onMessage(payload)
      })
      await fresh.ask(begin, [])
      return fresh
    } catch (error) {
      fresh.session.close()
      throw error
    }
  }

  function watch(): void {
    void connection.session.closed.then(() => {
      if (!isClosed) resubscribe(1)
    })
  }

  function resubscribe(attempt: number): void {
    const pauseMs = backoffMs(RECONNECTING, attempt)
    pause = setTimeout(async () => {
      try {
        connection = await opened()
      } catch {
        if (!isClosed) resubscribe(attempt + 1)
        return
      }
      if (isClosed) return connection.session.close()
      watch()
      listener.onResubscribed()
    }, pauseMs)
    pause.unref()
  }
}

const POOLED =
  'A pooler stands between us and PostgreSQL, and LISTEN does not work behind one. Connect directly, or do without.'

/** The cost does not show beside waiters, which ask every two seconds. */
const PROBE_EVERY_MS = 5000

/** Long enough for a server that restarts, short enough for a lease of some seconds. Jittered, because all clients return at once. */
const RECONNECTING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.25 }
