import { readFileSync } from 'node:fs'
import type { StoreTime } from '../../law/room.ts'

/**
 * The clock that all processes of this machine share. Node.js reads it from CLOCK_MONOTONIC (Linux), the Mach absolute
 * time (macOS) or the performance counter (Windows): all three count from the boot, are the same in every process, never
 * step, and stand still or go on during a suspend for everybody alike. So nobody is expired early or late when somebody
 * sets the wall clock, which is only the floor of the fences.
 */
export function machineTime(): StoreTime {
  const [seconds, nanoseconds] = process.hrtime()
  return { ms: seconds * 1000 + nanoseconds / 1e6, us: Date.now() * 1000 }
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
