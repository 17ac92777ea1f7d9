import { readFileSync } from 'node:fs'
import { CLOCK_NEEDED, machineClock } from '../../base/machine-clock.ts'
import { StoreError } from '../../errors.ts'
import type { StoreTime } from '../../law/room.ts'

/**
 * The clock that all processes of this machine share, so nobody is expired early or late when somebody sets the wall
 * clock, which is only the floor of the fences.
 *
 * @throws {StoreError} `store-refused` where this runtime cannot read it.
 */
export function machineTime(): StoreTime {
  const clock = machineClock()
  if (clock === undefined) throw new StoreError('store-refused', `The sqlite store ${CLOCK_NEEDED}`)
  return { ms: clock(), us: Date.now() * 1000 }
}

/**
 * Names the boot that {@link machineTime} counts from; empty where the system has no name for it. There a reboot is
 * noticed when the clock is behind what it was at the last grant, and otherwise costs a dead holder's ttl: then its
 * expiry lies at most that far ahead.
 */
export function bootOfMachine(): string {
  if (process.platform !== 'linux') return ''
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
  } catch {
    return ''
  }
}
