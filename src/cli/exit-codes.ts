import { constants } from 'node:os'

/** Exit codes, from sysexits.h where that has one. `holdfast run` passes on the code of the command that it ran. */
export const EXIT = {
  ok: 0,
  /** Nothing was found to act on, the doctor found a problem, or the demo saw exclusion broken. */
  failed: 1,
  usage: 64,
  storeUnavailable: 69,
  software: 70,
  /** The operating system could not start a process (EX_OSERR). */
  noProcess: 71,
  /** The output cannot be written (EX_IOERR). */
  noOutput: 74,
  notAcquired: 75,
  lost: 76,
  notExecutable: 126,
  notFound: 127,
} as const

/** The exit code that shells report for a process ended by a signal. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}
