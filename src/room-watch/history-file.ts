import type { KeyHold } from './hold-record.ts'
import type { WatchedTime } from './watched-times.ts'

/** Keeps a history beyond the life of this process. */
export interface HistoryFile {
  /** What was kept, oldest first. Only of keys that begin with `prefix`. */
  load(prefix: string): SavedHistory
  /**
   * Called after a look: the holds that have begun or ended, and the present stretch of watched time. Returns whether they
   * were written. If not, the next call has these holds again.
   */
  save(changed: readonly KeyHold[], watched: WatchedTime, keptSinceAt: number): boolean
}

export interface SavedHistory {
  readonly holds: readonly KeyHold[]
  readonly watched: readonly WatchedTime[]
  /** Since when all holds are among these; `undefined` if none is left out. */
  readonly completeFromAt?: number | undefined
}
