import { CLOCK_NEEDED, machineClock } from '../base/machine-clock.ts'
import { UsageError } from './usage-error.ts'

/** Milliseconds on the monotonic clock that all processes of this machine share. */
export function monotonicMs(): number {
  const clock = machineClock()
  if (clock === undefined) throw new UsageError(`This command ${CLOCK_NEEDED}`)
  return clock()
}
