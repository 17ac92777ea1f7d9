import { monotonicMs } from '../machine-time.ts'

/** An instant on both clocks of the machine, which all its processes share; it has passed as soon as one of them says so. */
export interface Deadline {
  /** Of the clock of the machine. May stand still while the machine is suspended. */
  readonly monotonicMs: number
  readonly wallMs: number
}

export function deadlineIn(durationMs: number): Deadline {
  return { monotonicMs: monotonicMs() + durationMs, wallMs: Date.now() + durationMs }
}

export function leftMs(deadline: Deadline): number {
  return Math.min(deadline.monotonicMs - monotonicMs(), deadline.wallMs - Date.now())
}
