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
    // Jittered, so that processes do not sweep together. Set to 0 below when there was more than one call could clear.
    this.#sweepAt = now + SWEEP_EVERY_MS * (0.5 + Math.random())
    this.#connections.query(this.#statement, [String(SWEPT_TOGETHER)]).then(
      ([row]) => {
        if (Number(row?.['answer']) === SWEPT_TOGETHER) this.#sweepAt = 0
      },
      () => {
        // Nothing depends on it. Another process sweeps, or this one later.
      },
    )
  }
}

const SWEEP_EVERY_MS = 600_000
const SWEPT_TOGETHER = 500
