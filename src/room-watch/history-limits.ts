export interface HistoryLimits {
  /** How many keys have a history: those that changed last. */
  readonly keys: number
  /** How many holds and samples are kept of a key. */
  readonly entries: number
  /** How many holds and samples are kept of all keys together. */
  readonly total: number
  /** How many looks `totals` goes back. */
  readonly looks: number
  /** How many losses are kept. */
  readonly losses: number
  /** How many changes wait for a file that cannot be written. */
  readonly unsaved: number
  /** How far the history goes back, in milliseconds. */
  readonly keepMs: number
}

/** Together these need some 30 MB at most. */
export const HISTORY_LIMITS: HistoryLimits = {
  keys: 20_000,
  entries: 60,
  total: 100_000,
  looks: 300,
  losses: 10_000,
  unsaved: 10_000,
  keepMs: 24 * 3_600_000,
}
