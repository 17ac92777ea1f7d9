import { type ChannelsConnection, type ChannelsListener, SILENCE_MS } from './client-link.ts'
import { replyCode } from './failures.ts'

/** A connection of a client library that is used for messages alone. */
export interface RawChannels {
  /** Connects if need be. */
  subscribe(channel: string): Promise<unknown>
  unsubscribe(channel: string): Promise<unknown>
  ping(): Promise<unknown>
  close(): void
}

/**
 * The channels of one connection. Sends a PING when no message has come for a while: without one, a half-open connection looks
 * like one on which nobody publishes.
 */
export class Channels implements ChannelsConnection {
  readonly #raw: RawChannels
  readonly #listener: ChannelsListener
  readonly #lost: Promise<never>
  #reject: (error: unknown) => void = () => {}
  #heardAt = 0
  /** Since when a request is open; undefined while none is. */
  #owedSince: number | undefined
  #timer: NodeJS.Timeout | undefined
  #closed = false

  constructor(raw: RawChannels, listener: ChannelsListener) {
    this.#raw = raw
    this.#listener = listener
    this.#lost = new Promise((_, reject) => {
      this.#reject = reject
    })
    // Perhaps no `add` waits when the connection is lost.
    this.#lost.catch(() => {})
  }

  async add(channel: string): Promise<void> {
    if (this.#closed) throw closedError()
    this.#owedSince ??= performance.now()
    this.#timer ??= this.#lookIn(SILENCE_MS)
    const subscribed = this.#raw.subscribe(channel)
    try {
      await Promise.race([subscribed, this.#lost])
      this.heard()
    } catch (error) {
      // The server may refuse this channel, and still serve others.
      this.#heardReply(error)
      throw error
    }
  }

  remove(channel: string): void {
    this.#raw.unsubscribe(channel).catch(() => {})
  }

  close(): void {
    this.#end(closedError())
  }

  /** A message has come. */
  take(message: string): void {
    this.heard()
    if (!this.#closed) this.#listener.onMessage(message)
  }

  /** Whatever the server says is a sign of life. */
  heard(): void {
    this.#heardAt = performance.now()
    this.#owedSince = undefined
  }

  /** The client library says that the connection is lost. */
  lose(error: unknown): void {
    if (this.#closed) return
    this.#end(error ?? new Error('The connection was lost'))
    this.#listener.onLost()
  }

  #end(error: unknown): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#reject(error)
    this.#raw.close()
  }

  /** An error that the server has sent is a sign of life, too. */
  #heardReply(error: unknown): void {
    if (replyCode(error) !== undefined) this.heard()
  }

  #lookIn(durationMs: number): NodeJS.Timeout {
    return setTimeout(this.#look, Math.max(1, durationMs)).unref()
  }

  readonly #look = (): void => {
    const owedSince = this.#owedSince
    if (owedSince === undefined) {
      const leftMs = this.#heardAt + QUIET_MS - performance.now()
      if (leftMs <= 0) this.#ask()
      this.#timer = this.#lookIn(leftMs <= 0 ? SILENCE_MS : leftMs)
      return
    }
    const leftMs = owedSince + SILENCE_MS - performance.now()
    if (leftMs > 0) {
      this.#timer = this.#lookIn(leftMs)
      return
    }
    // This process may have been the one that stood still: what has arrived meanwhile is read first.
    setImmediate(() => {
      if (this.#closed) return
      if (this.#owedSince === owedSince) this.lose(new Error('The server was silent'))
      else this.#timer = this.#lookIn(1)
    })
  }

  #ask(): void {
    this.#owedSince = performance.now()
    this.#raw.ping().then(
      () => this.heard(),
      (error: unknown) => this.#heardReply(error),
    )
  }
}

/** How long a connection may be without messages before it is asked for a sign of life. */
const QUIET_MS = 5000

function closedError(): Error {
  return new Error('The connection was closed')
}
