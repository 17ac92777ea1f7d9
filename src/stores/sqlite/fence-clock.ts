import type { StoreTime } from '../../law/room.ts'

/**
 * Fences have to rise whatever happens: the wall clock is set back, a room leaves nothing behind, the machine reboots.
 *
 * Writing the last fence with every grant would do, but costs a sixth of an uncontended cycle. Instead the file holds one
 * moment of this clock. From that moment on the clock runs with the machine's monotonic clock, which all processes share. A
 * moment is good for one second. The first grant after it writes the next moment: the time of the wall clock, but never less
 * than the end of the second before.
 */
export interface Moment {
  /** On the monotonic clock. */
  readonly ms: number
  /** µs since 1970 or later. */
  readonly us: number
}

/** Whether this moment is still good. */
export function isGood(moment: Moment, time: StoreTime): boolean {
  const sinceMs = time.ms - moment.ms
  return sinceMs >= 0 && sinceMs < GOOD_MS
}

/** The time for the law: `ms`, for expiry, by the monotonic clock; `us`, for fences, by this clock. */
export function timeSince(moment: Moment, time: StoreTime): StoreTime {
  const us = isGood(moment, time)
    ? Math.floor(moment.us + (time.ms - moment.ms) * 1000)
    : Math.max(time.us, moment.us + GOOD_MS * 1000)
  return { ms: time.ms, us }
}

/** No later step computes a lower time from this moment, whatever the wall clock shows by then. */
export function leastLaterUs(moment: Moment, time: StoreTime): number {
  const sinceMs = Math.min(Math.max(time.ms - moment.ms, 0), GOOD_MS)
  return Math.floor(moment.us + sinceMs * 1000)
}

/** Later than every moment that a power cut may have lost: commits reach the disk within half a minute. */
export function momentAfterReboot(last: Moment, time: StoreTime): Moment {
  return { ms: time.ms, us: Math.max(time.us, last.us + LOST_AT_MOST_MS * 1000) }
}

const GOOD_MS = 1000
const LOST_AT_MOST_MS = 600_000
