import { createRequire } from 'node:module'
import { uptime } from 'node:os'

/**
 * Returns a function that reads the monotonic clock that all processes of this machine share, in milliseconds since a
 * moment that is the same for all of them. `undefined` if this process cannot read that clock. The clock never steps.
 * During a suspend it stands still or goes on for every process alike.
 *
 * Node.js reads it with process.hrtime(): CLOCK_MONOTONIC on Linux, the Mach time on macOS, the performance counter on
 * Windows. On Bun 1.4 and Deno 2.9 process.hrtime() counts from the start of the process, so the lease that one process
 * has just taken is over for another. On Linux both can ask the C library for the clock that Node.js reads.
 */
export function machineClock(): (() => number) | undefined {
  found ??= { clock: hrtimeIsShared ? hrtimeMs : clockOfSystem() }
  return found.clock
}

let found: { readonly clock: (() => number) | undefined } | undefined

/** The message if there is no such clock. The name of what needs the clock stands before it. */
export const CLOCK_NEEDED: string =
  'needs the clock that all processes of the machine share, and process.hrtime() of this runtime counts from the start of the process. Use Node.js; or, on Linux, Bun, or Deno with --allow-ffi.'

/** The clocks of a process at one moment, in milliseconds. */
export interface ClockReadings {
  readonly hrtimeMs: number
  /** Since the start of the process. */
  readonly processMs: number
  /** Since the boot, if that is known. */
  readonly uptimeMs: number | undefined
  /** Since 1970. */
  readonly wallMs: number
}

/**
 * Whether `process.hrtime()` is the clock of the machine, judged by what it says and not by the name of the runtime. It
 * need not agree with the uptime, which goes on while a laptop sleeps, and which some containers have of their own.
 */
export function countsFromBoot({ hrtimeMs, processMs, uptimeMs, wallMs }: ClockReadings): boolean {
  // The wall clock, which steps when somebody sets it.
  if (Math.abs(hrtimeMs - wallMs) < DAY_MS) return false
  // The value of hrtime at the start of the process is the time since the boot, or nothing.
  if (hrtimeMs - processMs > START_MS) return true
  // Only the first processes of a small virtual machine start within that time of the boot.
  return uptimeMs !== undefined && Math.abs(hrtimeMs - uptimeMs) < AGREED_MS
}

const DAY_MS = 86_400_000
/** More than a runtime needs from its start to its first look at the clock. */
const START_MS = 1000
const AGREED_MS = 50

/** Looked at once and early: later a test may have replaced the clocks with its own. */
const hrtimeIsShared: boolean = countsFromBoot({
  hrtimeMs: hrtimeMs(),
  processMs: process.uptime() * 1000,
  uptimeMs: uptimeMs(),
  wallMs: Date.now(),
})

function uptimeMs(): number | undefined {
  try {
    return uptime() * 1000
  } catch {
    // Deno wants a permission for it.
    return undefined
  }
}

function hrtimeMs(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1000 + nanoseconds / 1e6
}

/** clock_gettime(CLOCK_MONOTONIC). A call takes 0.2 µs on Bun and 0.1 µs on Deno. */
function clockOfSystem(): (() => number) | undefined {
  if (process.platform !== 'linux') return undefined
  for (const library of C_LIBRARIES) {
    try {
      const getTime = openGetTime(library)
      const time = new BigInt64Array(2)
      if (getTime(CLOCK_MONOTONIC, time) !== 0) continue
      return () => {
        getTime(CLOCK_MONOTONIC, time)
        return Number(time[0]) * 1000 + Number(time[1]) / 1e6
      }
    } catch {
      // Another C library, a runtime that calls none, or no permission to.
    }
  }
  return undefined
}

/** glibc; musl, whose name says for which processor it is. */
const C_LIBRARIES: readonly string[] = [
  'libc.so.6',
  `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
]
const CLOCK_MONOTONIC = 1

/** `int clock_gettime(clockid_t, struct timespec *)`: two 64-bit numbers on every system that Bun and Deno run on. */
type GetTime = (clock: number, time: BigInt64Array) => number

interface Library {
  readonly symbols: { readonly clock_gettime: GetTime }
}

function openGetTime(library: string): GetTime {
  const { Deno } = globalThis as {
    readonly Deno?: { readonly dlopen?: (path: string, symbols: object) => Library }
  }
  if (Deno?.dlopen !== undefined) {
    const clock_gettime = { parameters: ['i32', 'buffer'], result: 'i32' }
    return Deno.dlopen(library, { clock_gettime }).symbols.clock_gettime
  }
  const { dlopen } = createRequire(process.execPath)('bun:ffi') as {
    readonly dlopen: (path: string, symbols: object) => Library
  }
  return dlopen(library, { clock_gettime: { args: ['i32', 'ptr'], returns: 'i32' } }).symbols.clock_gettime
}
