import { readFileSync } from 'node:fs'
import { CLOCK_NEEDED, machineClock } from '../../base/machine-clock.ts'
import { StoreError } from '../../errors.ts'
import type { StoreTime } from '../../law/room.ts'

/**
 * The monotonic clock that all processes of this machine share. A wall clock that is set makes no lease end early or late: it
 * is only the floor of the fences.
 *
 * @throws {StoreError} `store-refused` where this runtime cannot read it.
 */
export function machineTime(): StoreTime {
  const clock = machineClock()
  if (clock === undefined) throw new StoreError('store-refused', `The sqlite store ${CLOCK_NEEDED}`)
  return { ms: clock(), us: Date.now() * 1000 }
}

/**
 * Names the boot that {@link machineTime} counts from. Empty where the system has no name for it, or this process may not read it. The
 * same name proves the same boot. With another name, a clock that is behind the last grant proves a reboot.
 */
export function bootOfMachine(): string {
  if (process.platform !== 'linux') return ''
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
  } catch {
    return ''
  }
}
