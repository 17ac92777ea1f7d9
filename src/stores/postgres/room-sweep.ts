import type { PostgresConnections } from '../../postgres/connections.ts'

/** Clears rooms of processes that are gone. Called beside an acquire, so that an idle process sends nothing. */
export class RoomSweep {
  readonly #connections: PostgresConnections
  readonly #statement: string
  #sweepAt = 0

  constructor(connections: PostgresConnections, statement: string) {
    this.#connections = connections
    this.#statement = statement
  }

  nowAndThen(): void {
    const now = performance.now()
    if (now < this.#sweepAt) return
    // Jittered, so that processes do not sweep together. Sooner when a call could not clear everything.
    this.#sweepAt = now + SWEEP_EVERY_MS * (0.5 + Math.random())
    this.#connections.query(this.#statement, [String(SWEPT_TOGETHER)]).then(
      ([row]) => {
        if (Number(row?.['answer']) === 1) this.#sweepAt = performance.now() + SWEEP_AGAIN_MS
      },
      () => {
        // Nothing depends on it. Another process sweeps, or this one later.
      },
    )
  }
}

const SWEEP_EVERY_MS = 600_000
const SWEEP_AGAIN_MS = 100
const SWEPT_TOGETHER = 500
