import { closeSync, openSync, writeSync } from 'node:fs'

/**
 * Appends to the history of one process. Each line is one write call, which a kill of the process cannot undo. A line begins
 * with a line end, so a writer that is killed in the middle of it spoils only its own line.
 */
export class Recorder<Line> {
  readonly #file: number
  #bytes = 0

  constructor(path: string) {
    this.#file = openSync(path, 'a')
  }

  /**
   * How far the file is ahead of a steady pace, at which it would reach three quarters of its bound after `durationMs`. The
   * last quarter is for holds that go on. Negative: behind that pace.
   */
  aheadMs({ elapsedMs, durationMs }: { readonly elapsedMs: number; readonly durationMs: number }): number {
    return (this.#bytes / (0.75 * MOST_BYTES)) * durationMs - elapsedMs
  }

  /** Whether the file has reached its bound. A run is paced so that this does not happen. */
  get isFull(): boolean {
    return this.#bytes > MOST_BYTES
  }

  add(line: Line): void {
    if (this.#bytes > 2 * MOST_BYTES) return
    this.#bytes += writeSync(this.#file, `\n${JSON.stringify(line, short)}\n`)
  }

  close(): void {
    closeSync(this.#file)
  }
}

function short(_: string, value: unknown): unknown {
  return typeof value === 'number' && !Number.isInteger(value) ? Math.round(value * 1000) / 1000 : value
}

const MOST_BYTES = 16 * 2 ** 20

/** The gaps in which the event loop of this process did not run: it was stopped, or had no processor. */
export function watchGaps(now: () => number, tell: (from: number, at: number) => void): () => void {
  let looked = now()
  const timer = setInterval(() => {
    const at = now()
    if (at - looked > LOOK_MS + SHORTEST_GAP_MS) tell(looked, at)
    looked = at
  }, LOOK_MS)
  timer.unref()
  return () => clearInterval(timer)
}

const LOOK_MS = 25
const SHORTEST_GAP_MS = 50
