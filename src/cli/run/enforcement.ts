import { type Deadline, leftMs } from './deadline.ts'
import type { ProcessGroup } from './process-group.ts'

export interface EnforcementOptions {
  readonly deadline: Deadline
  /** How long before the deadline the group gets SIGTERM. 0: it gets none. */
  readonly graceMs: number
  /** The group got SIGTERM or SIGKILL. From now on the deadline does not move. */
  readonly onEnding: () => void
}

/** Ends a process group in time: SIGTERM `graceMs` before the deadline, SIGKILL at it. */
export class Enforcement {
  readonly #group: ProcessGroup
  readonly #graceMs: number
  readonly #onEnding: () => void
  #deadline: Deadline
  #ending = false
  #timer: NodeJS.Timeout | undefined

  constructor(group: ProcessGroup, options: EnforcementOptions) {
    this.#group = group
    this.#graceMs = options.graceMs
    this.#deadline = options.deadline
    this.#onEnding = options.onEnding
    this.#look()
  }

  get ending(): boolean {
    return this.#ending
  }

  /** The lease was renewed. Has no effect once the group got SIGTERM, as it is ending. */
  extend(deadline: Deadline): void {
    if (this.#ending) return
    this.#deadline = deadline
    this.#look()
  }

  kill(): void {
    this.#group.signal('SIGKILL')
    this.#end()
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #look(): void {
    this.stop()
    const left = leftMs(this.#deadline)
    if (left <= 0) return this.kill()
    if (left <= this.#graceMs && !this.#ending) {
      this.#group.signal('SIGTERM')
      this.#end()
    }
    const next = this.#ending ? left : left - this.#graceMs
    // Within a second: after the machine was suspended, only the wall clock shows that the deadline has passed.
    this.#timer = setTimeout(() => this.#look(), Math.min(Math.ceil(next), LOOK_MS))
  }

  #end(): void {
    if (this.#ending) return
    this.#ending = true
    this.#onEnding()
  }
}

const LOOK_MS = 1000
