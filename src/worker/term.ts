import { fieldOf } from '../base/thrown.ts'
import { ClosedError, LeaseLostError, TaskFailedError } from '../errors.ts'
import type { WorkerLease } from './lock.ts'

/** Why a term ends: `worker.stop()` was called, the lease was lost, or the work reported that it failed. */
export type StopReason = 'stopped' | 'lost' | 'failed'

/** What a worker was doing as something went wrong: it asked for the lock, held it, or started, did or stopped its work. */
export type Doing = 'acquire' | 'hold' | 'start' | 'work' | 'stop'

/** One time of holding the lock, as its work sees it. */
export interface WorkerTerm {
  /** Aborts when the term is to end, for whatever reason: begin nothing new, and bring to an end what runs. */
  readonly signal: AbortSignal
  /** Says that the work broke after it had started: it is stopped, the lock is given back, and it is tried again later. */
  readonly fail: (error: unknown) => void
}

/** As the machine sees it. */
export interface CurrentTerm extends WorkerTerm {
  readonly lease: WorkerLease
  readonly ending: AbortController
}

export function newTerm(lease: WorkerLease, broke: (error: unknown) => void): CurrentTerm {
  const ending = new AbortController()
  const fail = (error: unknown) => {
    // A term that is over must not end the next one.
    if (!ending.signal.aborted) broke(error)
  }
  return { lease, ending, signal: ending.signal, fail }
}

/** Whether an error only passes on why a signal aborted. */
export function isAnswerTo(reason: unknown, error: unknown): boolean {
  return error === reason || fieldOf(error, 'name') === 'AbortError' || fieldOf(error, 'cause') === reason
}

export function stopped(): ClosedError {
  return new ClosedError('The worker was stopped: end the work of this term.')
}

export function released(): LeaseLostError {
  return new LeaseLostError(
    'The lease was released while the work under it went on. Leave that to the worker.',
    { reason: 'released' },
  )
}

export function overdue({
  graceMs,
  reason,
}: {
  readonly graceMs: number
  readonly reason: StopReason | undefined
}): TaskFailedError {
  return new TaskFailedError(
    `The work did not end within ${graceMs} ms after its term was over (${reason}). Its lock is not renewed any more and runs out, and nothing is started again in this process before it has ended.`,
  )
}
