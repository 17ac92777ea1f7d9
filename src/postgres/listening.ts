import { type Backoff, backoffMs } from '../base/backoff.ts'
import { StoreError } from '../errors.ts'
import type { Line } from './connection.ts'
import type { MessageListener } from './connections.ts'
import { quoteIdentifier } from './identifiers.ts'

export interface Listening {
  /** Whether messages flow, as far as this process knows. */
  readonly isOpen: boolean
  /**
   * Asks the server whether this connection still lives, at most every few seconds. A connection that gives no answer is
   * replaced. A lost route shows itself only to a side that sends, and a listener sends nothing.
   */
  prove(): void
  close(): void
}

/** Resolves once messages flow, and rejects when they cannot; from then on it never gives up. */
export async function listenOn(
  channel: string,
  listener: MessageListener,
  open: () => Promise<Line>,
): Promise<Listening> {
  const listen = `listen ${quoteIdentifier(channel)}`
  const begin = listener.presence === undefined ? listen : `${listen}; ${listener.presence}`
  let line = await subscribe()
  let isClosed = false
  let pause: NodeJS.Timeout | undefined
  let proveAt = 0
  watch()
  return {
    get isOpen() {
      return !line.isLost
    },
    prove() {
      const now = performance.now()
      if (line.isLost || now < proveAt) return
      proveAt = now + PROOF_EVERY_MS
      // A line that gets no answer closes itself, and is replaced as after every other loss.
      line.ask(listen, []).catch(() => {})
    },
    close() {
      isClosed = true
      clearTimeout(pause)
      line.session.close()
    },
  }

  async function subscribe(): Promise<Line> {
    const opened = await open()
    try {
      if (opened.isPooled) throw new StoreError('store-refused', POOLED)
      opened.session.onMessage((from, payload) => {
        if (from === channel) listener.onMessage(payload)
      })
      await opened.ask(begin, [])
      return opened
    } catch (error) {
      opened.session.close()
      throw error
    }
  }

  function watch(): void {
    void line.session.closed.then(() => {
      if (!isClosed) resubscribe(1)
    })
  }

  function resubscribe(attempt: number): void {
    const pauseMs = backoffMs(RECONNECTING, attempt)
    pause = setTimeout(async () => {
      try {
        line = await subscribe()
      } catch {
        if (!isClosed) resubscribe(attempt + 1)
        return
      }
      if (isClosed) return line.session.close()
      watch()
      listener.onResubscribed()
    }, pauseMs)
    pause.unref()
  }
}

const POOLED =
  'A pooler stands between us and PostgreSQL, and LISTEN does not work behind one. Connect directly, or do without.'

/** Seldom enough to cost nothing, beside waiters that ask every two seconds. */
const PROOF_EVERY_MS = 5000

/** Long enough for a server that restarts, short enough for a lease of some seconds. */
const RECONNECTING: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.25 }
