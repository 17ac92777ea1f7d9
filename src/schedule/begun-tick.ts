import type { Ticks } from '../base/ticks.ts'
import { unlessAborted } from '../base/unless-aborted.ts'
import type { Marks } from './marks.ts'

export interface BegunTickSearch {
  readonly ticks: Ticks
  readonly marks: Marks
  /** The latest tick that may be the one. */
  readonly lastMs: number
  readonly nowMs: number
  /** Aborts when the job is stopped: nobody waits for the answer then. */
  readonly stopping: AbortSignal
}

/**
 * The tick whose run goes on in some process, or broke off and was not taken over. `undefined` if there is none, or it is not
 * among the ticks that this looks at: the last one, and if a run goes on, the two around its begin. Ticks may have come since.
 */
export async function findBegunTick({ stopping, ...search }: BegunTickSearch): Promise<number | undefined> {
  stopping.throwIfAborted()
  return unlessAborted(find(search), stopping)
}

async function find({
  ticks,
  marks,
  lastMs,
  nowMs,
}: Omit<BegunTickSearch, 'stopping'>): Promise<number | undefined> {
  const state = await marks.stateOf(lastMs)
  if (state !== undefined) return state === 'begun' ? lastMs : undefined
  const running = await marks.running()
  if (running === undefined) return undefined
  const beganMs = nowMs - running.sinceMs
  // By the clock of this process, the run may have begun before its tick.
  for (const tick of [ticks.next(beganMs), ticks.last(beganMs)]) {
    if (tick !== undefined && tick < lastMs && (await marks.stateOf(tick)) === 'begun') return tick
  }
  return undefined
}
