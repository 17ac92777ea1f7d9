import type { Clock } from '../contract/clock.ts'
import { SimulatedClock, type SimulatedClockOptions } from './simulated-clock.ts'

export interface SimulatedProcessOptions extends Omit<SimulatedClockOptions, 'deliver'> {
  readonly name: string
  /** After a pause, whether timers come before what has arrived by then; Node.js does either. Default: they do. */
  readonly timersFirst?: () => boolean
}

/**
 * A process as others see it: what it does, it does when a timer fires or a message arrives. It can be paused (SIGSTOP,
 * a blocked event loop), suspended together with its machine, or crash, and then nothing of it ever happens again.
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
  readonly name: string
  readonly clock: SimulatedClock
  /** How often it was paused so far: whether it was in between. */
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

  get alive(): boolean {
    return this.#state !== 'crashed'
  }

  /** Runs and has done everything that was due. */
  get upToDate(): boolean {
    return this.#state === 'running' && !this.#catchingUp
  }

  /** Something reaches the process: now, when it goes on, or never. */
  deliver(act: () => void): void {
    this.#meet(this.#messages, act)
  }

  /** Called once, in the same turn of the event loop as the next thing that reaches the process, and after it. */
  afterNext(act: () => void): void {
    this.#next = act
  }

  pause(): void {
    if (this.#state !== 'running') return
    this.#state = 'paused'
    this.pauses += 1
  }

  /** Paused, and its monotonic clock with it. */
  suspend(): void {
    if (this.#state !== 'running') return
    this.pause()
    this.clock.standStill()
  }

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

  /** One thing after the other, each with everything that follows from it. */
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
