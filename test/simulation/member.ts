import type { Store } from '../../src/contract/store.ts'
import type { Engine } from '../../src/engine/engine.ts'
import type { Locks } from '../../src/primitives/locks.ts'
import type { SimulatedLink } from '../../src/testing/simulated-network.ts'
import type { SimulatedProcess } from '../../src/testing/simulated-process.ts'

/** One process of the history, with locks over its own connection to the store. */
export class Member {
  readonly process: SimulatedProcess
  readonly link: SimulatedLink | undefined
  readonly engine: Engine
  readonly locks: Locks
  /** The names of the calls that have not settled yet. */
  readonly pending = new Set<string>()
  closed = false
  /** Whether the wall clock of this process was set. Then it may lose leases too early. */
  clocksJumped = false
  /** How often the difference of its two clocks has changed. */
  leaps = 0
  /** When the process was away last, or caught up with what had happened meanwhile. */
  disturbedAt: number | undefined

  constructor(options: {
    readonly process: SimulatedProcess
    readonly link: SimulatedLink | undefined
    readonly engine: Engine
    readonly locks: Locks
  }) {
    this.process = options.process
    this.link = options.link
    this.engine = options.engine
    this.locks = options.locks
  }

  get name(): string {
    return this.process.name
  }

  /** The store as this process sees it. */
  get store(): Store {
    return this.engine.store
  }

  /** Whether the process takes part: it is neither dead nor closed. */
  get active(): boolean {
    return this.process.alive && !this.closed
  }

  sleep(durationMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.process.clock.startTimer(durationMs, resolve)
    })
  }
}
