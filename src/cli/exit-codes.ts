import { constants } from 'node:os'

/** What the process exits with, as in sysexits.h where that has a word for it. A command's own code comes before these. */
export const EXIT = {
  ok: 0,
  /** There was nothing to do it to, or the demo saw exclusion broken. */
  failed: 1,
  usage: 64,
  storeUnavailable: 69,
  software: 70,
  /** The operating system started no process (EX_OSERR). */
  noProcess: 71,
  /** What it says cannot be written (EX_IOERR). */
  noOutput: 74,
  notAcquired: 75,
  lost: 76,
  notExecutable: 126,
  notFound: 127,
} as const

/** What shells report of a process that a signal has ended. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}
