/** A request to one server that has no answer yet. */
export interface OpenRequest {
  /** When the request was sent, by `performance.now()`, plus the time for which this process stood still meanwhile. */
  silentSince: number
  readonly abandon: (error: unknown) => void
  isAbandoned: boolean
}

export interface SilenceOptions {
  /** Whether the other servers make a quorum. If not, this one gets more time: this process or the network may be slow. */
  isSpare(): boolean
  /** The server was silent for too long. */
  onSilence(): void
}

/**
 * The open requests to one server, the oldest first. They watch how long the server is silent: the time since the oldest of
 * them was sent, or since the server last answered anything. A server that works through many requests is slow, not silent.
 */
export class OpenRequests {
  readonly #options: SilenceOptions
  readonly #requests = new Set<OpenRequest>()
  #timer: NodeJS.Timeout | undefined
  /** When the timer is due. */
  #checkAt = 0
  /** When the server answered last. */
  #heardAt = Number.NEGATIVE_INFINITY
  #closed = false

  constructor(options: SilenceOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#requests.size
  }

  add(abandon: (error: unknown) => void): OpenRequest {
    const open: OpenRequest = { silentSince: performance.now(), abandon, isAbandoned: false }
    this.#requests.add(open)
    this.#startTimer()
    return open
  }

  delete(open: OpenRequest): void {
    this.#requests.delete(open)
  }

  /** When the server answered last, by `performance.now()`. */
  get heardAt(): number {
    return this.#heardAt
  }

  /** The server answered something. */
  heard(): void {
    this.#heardAt = performance.now()
  }

  /** All of them fail now. They stay open until their answers come. */
  abandonAll(error: unknown): void {
    for (const open of this.#requests) {
      if (open.isAbandoned) continue
      open.isAbandoned = true
      open.abandon(error)
    }
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
  }

  #startTimer(last: LastTimer = ON_TIME): void {
    if (this.#timer !== undefined || this.#closed || this.#oldest() === undefined) return
    const leftMs = Math.max(1, Math.min(SILENCE_MS, this.#leftMs(last)))
    this.#checkAt = performance.now() + leftMs
    this.#timer = setTimeout(this.#check, leftMs).unref()
  }

  /** Reports the silence if it lasts for too long. First it reads replies that have arrived: perhaps this process hung. */
  readonly #check = (): void => {
    this.#timer = undefined
    const now = performance.now()
    const lateMs = now - this.#checkAt
    const last = { wasLate: lateMs > LATE_MS }
    if (last.wasLate) this.#discountStandstill(lateMs, now)
    if (this.#leftMs(last) > 1) return this.#startTimer(last)
    setImmediate(() => {
      // Another server may have been given up meanwhile, so that this one is needed for a quorum and gets more time.
      if (this.#closed || this.#leftMs(last) > 1) return this.#startTimer(last)
      this.#options.onSilence()
    })
  }

  /** No server is silent while this process stands still: its requests may not even be sent. */
  #discountStandstill(stoodStillMs: number, now: number): void {
    this.#heardAt = Math.min(now, this.#heardAt + stoodStillMs)
    for (const open of this.#requests) open.silentSince = Math.min(now, open.silentSince + stoodStillMs)
  }

  /**
   * How much longer the server may be silent. After a late timer it may be silent for longer: the servers may have had no time either.
   */
  #leftMs({ wasLate }: LastTimer): number {
    const oldest = this.#oldest()
    if (oldest === undefined) return Number.POSITIVE_INFINITY
    const isSpare = this.#options.isSpare() && !wasLate
    const silentSince = Math.max(oldest.silentSince, this.#heardAt)
    return silentSince + (isSpare ? SILENCE_MS : LONG_SILENCE_MS) - performance.now()
  }

  #oldest(): OpenRequest | undefined {
    for (const open of this.#requests) if (!open.isAbandoned) return open
    return undefined
  }
}

interface LastTimer {
  readonly wasLate: boolean
}

const ON_TIME: LastTimer = { wasLate: false }

/**
 * After so long without an answer a server is given up. A caller that gets a quorum from the others does not wait for it at
 * all, so this delays only the first refusal after the server has begun to hang.
 */
const SILENCE_MS = 300
/** The same for a server without which there would be no quorum. */
const LONG_SILENCE_MS = 2000
/** A timer that is so late shows that this process or the machine stood still. */
const LATE_MS = 50
