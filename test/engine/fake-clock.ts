import type { Clock, Timer } from '../../src/contract/clock.ts'

/**
 * Time that stands still until a test lets it pass. It has three clocks, as in the world: the machine's monotonic one,
 * its wall clock, and the clock of the store, which runs on another machine.
 */
export class FakeClock implements Clock {
  #monotonicMs = 1000
  #wallMs = 1_800_000_000_000
  #storeMs = 5000
  #timers = new Set<FakeTimer>()

  monotonicMs(): number {
    return this.#monotonicMs
  }

  wallMs(): number {
    return this.#wallMs
  }

  /** For `memoryStore({ now })`. */
  storeTime = (): { ms: number; us: number } => ({ ms: this.#storeMs, us: this.#storeMs * 1000 })

  startTimer(delayMs: number, fire: () => void): Timer {
    const timer: FakeTimer = {
      firesAt: this.#monotonicMs + Math.max(0, delayMs),
      fire,
      keepsAlive: false,
      stop: () => {
        this.#timers.delete(timer)
      },
      keepAlive: (yes) => {
        timer.keepsAlive = yes
      },
    }
    this.#timers.add(timer)
    return timer
  }

  /** How many timers are running, and how many of them would keep the process alive. */
  get timers(): { readonly running: number; readonly keepingAlive: number } {
    const running = [...this.#timers]
    return { running: running.length, keepingAlive: running.filter((timer) => timer.keepsAlive).length }
  }

  /**
   * Lets time pass. Fires the timers in their order, and lets everything that follows from one timer happen before the
   * next one.
   */
  async advance(durationMs: number): Promise<void> {
    const until = this.#monotonicMs + durationMs
    await settled()
    for (let next = this.#nextBy(until); next !== undefined; next = this.#nextBy(until)) {
      this.#pass(Math.max(0, next.firesAt - this.#monotonicMs))
      this.#timers.delete(next)
      next.fire()
      await settled()
    }
    // What was fired may have blocked the event loop for longer.
    this.#pass(Math.max(0, until - this.#monotonicMs))
    await settled()
  }

  /** Lets time pass until the promise has settled, and passes its result on. */
  async until<T>(promise: Promise<T>, { withinMs = 3_600_000, stepMs = 10 } = {}): Promise<T> {
    let pending = true
    const done = promise.finally(() => {
      pending = false
    })
    done.catch(() => {})
    const giveUpAt = this.#monotonicMs + withinMs
    for (await settled(); pending; await this.advance(stepMs))
      if (this.#monotonicMs >= giveUpAt) throw new Error(`Still pending after ${withinMs} ms`)
    return done
  }

  /** Lets time pass until the condition is true. */
  async untilTrue(isSo: () => boolean, { withinMs = 3_600_000, stepMs = 10 } = {}): Promise<void> {
    const giveUpAt = this.#monotonicMs + withinMs
    for (await settled(); !isSo(); await this.advance(stepMs))
      if (this.#monotonicMs >= giveUpAt) throw new Error(`Still not so after ${withinMs} ms: ${isSo}`)
  }

  /** Blocks the event loop: time passes and no timer fires. */
  block(durationMs: number): void {
    this.#pass(durationMs)
  }

  /** Suspends the machine: its monotonic clock stands still and no timer fires; the world goes on. */
  suspend(durationMs: number): void {
    this.#wallMs += durationMs
    this.#storeMs += durationMs
  }

  /** Sets the wall clock forward or back. */
  jumpWall(byMs: number): void {
    this.#wallMs += byMs
  }

  #pass(durationMs: number): void {
    this.#monotonicMs += durationMs
    this.#wallMs += durationMs
    this.#storeMs += durationMs
  }

  #nextBy(until: number): FakeTimer | undefined {
    let next: FakeTimer | undefined
    for (const timer of this.#timers)
      if (timer.firesAt <= until && (next === undefined || timer.firesAt < next.firesAt)) next = timer
    return next
  }
}

interface FakeTimer extends Timer {
  readonly firesAt: number
  readonly fire: () => void
  keepsAlive: boolean
}

/** The delays of all timers that are started from now on. More timers than `most` are an error. */
export function delaysOf(clock: FakeClock, { most = 1000 } = {}): readonly number[] {
  const delays: number[] = []
  const start = clock.startTimer.bind(clock)
  clock.startTimer = (delayMs, fire) => {
    delays.push(delayMs)
    if (delays.length > most) throw new Error(`More than ${most} timers were started`)
    return start(delayMs, fire)
  }
  return delays
}

/** Resolves after everything that can happen without time passing. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
