import { monotonicMs } from '../machine-time.ts'

/** An instant on both clocks that the machine's processes share. It has passed as soon as one of the clocks says so. */
export interface Deadline {
  /** This clock may stand still while the machine is suspended. */
  readonly monotonicMs: number
  readonly wallMs: number
}

export function deadlineIn(durationMs: number): Deadline {
  return { monotonicMs: monotonicMs() + durationMs, wallMs: Date.now() + durationMs }
}

export function leftMs(deadline: Deadline): number {
  return Math.min(deadline.monotonicMs - monotonicMs(), deadline.wallMs - Date.now())
}
