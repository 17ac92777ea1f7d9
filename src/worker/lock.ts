import { ClosedError } from '../errors.ts'

/** The part of a held lock that the machine needs. A Holdfast `Lease` has it. */
export interface WorkerLease {
  /** Aborts when the lock is lost; its reason says why. */
  readonly signal: AbortSignal
  /** `jeopardy` while a renewal is overdue, `released` when it was given back. A lock that cannot tell leaves it out. */
  readonly state?: string | undefined
  /** Milliseconds until the deadline, where that is known: `state` is looked at eight times within it. */
  readonly remainingMs?: number | undefined
  /** Reads the clocks and throws if the lock is lost. Called right before the work starts, because the signal may be late. */
  assertHeld?(): void
  /** Gives the lock back. */
  release(): unknown
  /** Ends the renewal without a release, so that the lock expires. If this is left out, the lock is released instead. */
  detach?(): unknown
}

/** Any lock that excludes others and can be lost. After the signal aborts, a lease that still comes is released. */
export interface WorkerLock {
  /** Resolves with the lease if the lock is free, and with null if it is taken. */
  tryAcquire(signal: AbortSignal): Promise<WorkerLease | null>
  /** Waits for the lock, however long. */
  acquire(signal: AbortSignal): Promise<WorkerLease>
  /**
   * Resolves when aborted calls have left nothing behind, so that the process may end. Awaited for a few seconds at most. Leave
   * it out if an aborted call cannot leave anything behind.
   */
  left?(): Promise<unknown>
}

export type LockAnswer =
  | { readonly type: 'granted'; readonly lease: WorkerLease }
  | { readonly type: 'busy' }
  | { readonly type: 'unavailable'; readonly error: unknown }

/**
 * An actor that asks once and sends the answer to the machine. It checks for a stop and answers in one step, so a grant either
 * arrives or is released. A promise actor of XState would drop a result that comes as its state is left, and the lease would
 * never be released.
 */
export function asking(
  ask: (signal: AbortSignal) => Promise<WorkerLease | null>,
  answer: (answer: LockAnswer) => void,
): () => void {
  const leaving = new AbortController()
  void (async () => {
    try {
      const lease = await ask(leaving.signal)
      if (!leaving.signal.aborted) answer(lease === null ? { type: 'busy' } : { type: 'granted', lease })
      else await lease?.release()
    } catch (error) {
      if (!leaving.signal.aborted) answer({ type: 'unavailable', error })
    }
  })()
  return () => leaving.abort(new ClosedError('The worker does not wait for this lock any more.'))
}

/** Ends the renewal of a lock whose work does not end: the work still has the rest of the ttl. The lock may be lost already. */
export function letGo(lease: WorkerLease): void {
  const end = async () => (lease.detach === undefined ? lease.release() : lease.detach())
  end().catch(() => {})
}
