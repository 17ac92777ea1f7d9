import { StoreError } from '../errors.ts'
import type { MessageListener } from './connections.ts'
import { quoteIdentifier } from './identifiers.ts'
import type { Line } from './line.ts'

/** Resolves once messages flow, and rejects when they cannot; from then on it never gives up. */
export async function listenOn(
  channel: string,
  listener: MessageListener,
  open: () => Promise<Line>,
): Promise<{ close(): void }> {
  let line = await subscribe()
  let isClosed = false
  let pause: NodeJS.Timeout | undefined
  watch()
  return {
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
      await opened.ask(`listen ${quoteIdentifier(channel)}`, [])
      return opened
    } catch (error) {
      opened.session.close()
      throw error
    }
  }

  function watch(): void {
    void line.session.closed.then(() => {
      if (!isClosed) resubscribe(0)
    })
  }

  function resubscribe(attempt: number): void {
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
    }, reconnectDelayMs(attempt))
    pause.unref()
  }
}

const POOLED =
  'A pooler stands between us and PostgreSQL, and LISTEN does not work behind one. Connect directly, or do without.'

/** Long enough for a server that restarts, short enough for a lease of some seconds; jittered, since all come back at once. */
function reconnectDelayMs(attempt: number): number {
  return Math.min(50 * 2 ** Math.min(attempt, 10), 1000) * (0.75 + Math.random() / 4)
}
