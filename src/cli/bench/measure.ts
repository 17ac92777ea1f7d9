import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'

/** Measures one kind of work, over and over. */
export interface Measurement {
  /** Does the work once, and resolves with how long it took, in milliseconds. `index`: which of the loops it is. */
  readonly work: (index: number) => Promise<number>
  /** How many loops do the work side by side. */
  readonly atOnce: number
  readonly durationMs: number
  /** Ends the measurement early. */
  readonly signal: AbortSignal
}

/** How long the work took, in milliseconds. */
export interface Measured {
  readonly count: number
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly longestMs: number
}

/** A warm-up comes first, and is not counted: code is cold then, and connections open. @throws what the work throws. */
export async function measure({ work, atOnce, durationMs, signal }: Measurement): Promise<Measured> {
  const loops = Array.from({ length: atOnce }, (_, index) => index)
  const around = async (forMs: number): Promise<{ times: RecordableHistogram; tookMs: number }> => {
    const times = createHistogram()
    const beganAt = performance.now()
    const failed = new AbortController()
    await Promise.all(
      loops.map(async (index) => {
        try {
          do times.record(Math.max(1, Math.round((await work(index)) * 1e6)))
          while (performance.now() - beganAt < forMs && !signal.aborted && !failed.signal.aborted)
        } catch (error) {
          failed.abort()
          throw error
        }
      }),
    )
    return { times, tookMs: performance.now() - beganAt }
  }
  await around(Math.min(LONGEST_WARM_UP_MS, durationMs / 4))
  const { times, tookMs } = await around(durationMs)
  signal.throwIfAborted()
  return {
    count: times.count,
    perSecond: (times.count / tookMs) * 1000,
    p50Ms: times.percentile(50) / 1e6,
    p99Ms: times.percentile(99) / 1e6,
    longestMs: times.max / 1e6,
  }
}

const LONGEST_WARM_UP_MS = 500
