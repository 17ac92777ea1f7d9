import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused, systemClock } from '../base/clock.ts'
import { unlessAborted } from '../base/unless-aborted.ts'
import { isHoldfastError } from '../errors.ts'
import type { JobTables } from './job-tables.ts'

/**
 * Resolves when no job of a paused name runs, and no claim is under way that may have missed the pause. While the database does not
 * answer, it waits on. Rejects with the reason of a signal, as soon as it aborts.
 */
export async function untilIdle(
  tables: JobTables,
  name: string,
  signals: readonly AbortSignal[],
): Promise<void> {
  for (const signal of signals) signal.throwIfAborted()
  await unlessAborted(look(tables, name, signals), ...signals)
}

async function look(tables: JobTables, name: string, signals: readonly AbortSignal[]): Promise<void> {
  let claims: readonly string[] | null = null
  for (let looks = 1; signals.every(({ aborted }) => !aborted); looks += 1) {
    try {
      const still = await tables.stillBusy(name, claims)
      if (still.claims.length === 0 && still.running === 0) return
      claims = still.claims
    } catch (error) {
      if (!isHoldfastError(error, 'store-unavailable')) throw error
    }
    await paused(systemClock, backoffMs(LOOKING, looks), ...signals)
  }
}

const LOOKING: Backoff = { firstMs: 10, longestMs: 500, jitter: 0.1 }
