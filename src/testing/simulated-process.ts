import type { Clock } from '../contract/clock.ts'
import { SimulatedClock, type SimulatedClockOptions } from './simulated-clock.ts'

/** The name and the clock of a process. */
export interface SimulatedProcessOptions extends Omit<SimulatedClockOptions, 'deliver'> {
  /** The name, for messages. */
  readonly name: string
  /** Whether, after a pause, timers fire before messages that have arrived. Node.js does either. Default: they do. */
  readonly timersFirst?: () => boolean
}

/**
 * A process as others see it: it acts when a timer fires or a message arrives. It can be paused (SIGSTOP, a blocked event
 * loop), or suspended together with its machine. It can crash, and then no callback of it ever runs again.
 *
 * ```ts
 * import { SimulatedProcess, SimulatedTime } from 'holdfast/testing'
 *
 * const time = new SimulatedTime()
 * const process = new SimulatedProcess({ name: 'worker', time, rate: 1.0025 })
 * process.clock.startTimer(1000, () => console.log('late, because it was paused'))
 * process.pause()
 * time.startTimer(5000, () => process.resume())
 * await time.advance(10_000)
 * ```
 */
export class SimulatedProcess {
  /** The name, for messages. */
  readonly name: string
  /** The clock of its machine. */
  readonly clock: SimulatedClock
  /** How often it was paused so far. If the number has not changed, there was no pause in between. */
  pauses = 0
  readonly #time: Clock
  readonly #timersFirst: () => boolean
  #state: 'running' | 'paused' | 'crashed' = 'running'
  #overdueTimers: (() => void)[] = []
  #messages: (() => void)[] = []
  #catchingUp = false
  #next: (() => void) | undefined

  constructor(options: SimulatedProcessOptions) {
    this.name = options.name
    this.#time = options.time
    this.#timersFirst = options.timersFirst ?? (() => true)
    this.clock = new SimulatedClock({ ...options, deliver: (act) => this.#meet(this.#overdueTimers, act) })
  }

  /** Whether it has not crashed. */
  get alive(): boolean {
    return this.#state !== 'crashed'
  }

  /** Whether it runs, and has run everything that was due. */
  get upToDate(): boolean {
    return this.#state === 'running' && !this.#catchingUp
  }

  /** Runs a callback in the process: now, after its pause, or never if it has crashed. */
  deliver(act: () => void): void {
    this.#meet(this.#messages, act)
  }

  /** Called once, right after the next callback that runs in the process and in the same turn of the event loop. */
  afterNext(act: () => void): void {
    this.#next = act
  }

  /** Pauses the process (SIGSTOP). What becomes due meanwhile happens after `resume`. */
  pause(): void {
    if (this.#state !== 'running') return
    this.#state = 'paused'
    this.pauses += 1
  }

  /** Pauses the process and its monotonic clock. */
  suspend(): void {
    if (this.#state !== 'running') return
    this.pause()
    this.clock.standStill()
  }

  /** Ends `pause` and `suspend`. */
  resume(): void {
    if (this.#state !== 'paused') return
    this.#state = 'running'
    this.clock.goOn()
    const [first, second] = this.#timersFirst()
      ? [this.#overdueTimers, this.#messages]
      : [this.#messages, this.#overdueTimers]
    this.#overdueTimers = []
    this.#messages = [...first, ...second]
    this.#catchUp()
  }

  /** Ends the process for ever: no callback of it runs again. */
  crash(): void {
    this.#state = 'crashed'
    this.#overdueTimers = []
    this.#messages = []
  }

  #meet(backlog: (() => void)[], act: () => void): void {
    if (this.#state === 'crashed') return
    if (this.#state === 'paused') backlog.push(act)
    else if (this.#catchingUp) this.#messages.push(act)
    else this.#perform(act)
  }

  /** Runs the callbacks that are due, one after the other, each with all promise callbacks that follow from it. */
  #catchUp(): void {
    if (this.#catchingUp || this.#messages.length === 0) return
    this.#catchingUp = true
    this.#time.startTimer(0, () => {
      this.#catchingUp = false
      if (this.#state !== 'running') return
      const act = this.#messages.shift()
      if (act !== undefined) this.#perform(act)
      this.#catchUp()
    })
  }

  #perform(act: () => void): void {
    const next = this.#next
    this.#next = undefined
    act()
    next?.()
  }
}
