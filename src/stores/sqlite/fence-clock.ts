import type { StoreTime } from '../../law/room.ts'

/**
 * The floor of fences has to rise over everything: a wall clock that is set back, rooms that leave nothing behind, a
 * reboot. To write the last fence down with every grant would do, and costs a sixth of an uncontended cycle. Instead the
 * file holds one moment of this clock, and between such moments it goes on with the machine's monotonic clock, which all
 * processes share. Each moment is good for one second; whoever grants later than that writes the next one, which is what
 * the wall clock says, but never less than where the second before has ended.
 */
export interface Moment {
  /** On the monotonic clock. */
  readonly ms: number
  /** µs since 1970 or later. */
  readonly us: number
}

/** Whether the clock still goes by this moment. */
export function isGood(moment: Moment, time: StoreTime): boolean {
  const sinceMs = time.ms - moment.ms
  return sinceMs >= 0 && sinceMs < GOOD_MS
}

/** The time for the law: expiry by the monotonic clock, fences by this one. */
export function timeSince(moment: Moment, time: StoreTime): StoreTime {
  const us = isGood(moment, time)
    ? Math.floor(moment.us + (time.ms - moment.ms) * 1000)
    : Math.max(time.us, moment.us + GOOD_MS * 1000)
  return { ms: time.ms, us }
}

/** Above every moment that a power cut may have taken with it: commits reach the disk within half a minute. */
export function momentAfterReboot(last: Moment, time: StoreTime): Moment {
  return { ms: time.ms, us: Math.max(time.us, last.us + LOST_AT_MOST_MS * 1000) }
}

const GOOD_MS = 1000
const LOST_AT_MOST_MS = 600_000
