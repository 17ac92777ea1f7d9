import { ClosedError } from '../errors.ts'

/** What the machine needs to know of a lock that is held. A Holdfast `Lease` is one. */
export interface WorkerLease {
  /** Aborts when the lock is lost; its reason says why. */
  readonly signal: AbortSignal
  /** `jeopardy` while a renewal is overdue, `released` when it was given back. A lock that cannot tell leaves it out. */
  readonly state?: string | undefined
  /** Milliseconds until the deadline, where that is known: `state` is looked at eight times within it. */
  readonly remainingMs?: number | undefined
  /** Throws when the lock is lost, by the clocks: asked right before the work starts, as the signal may be late by then. */
  assertHeld?(): void
  /** Gives the lock back. */
  release(): unknown
  /** Ends the renewal without giving the lock back, so that it runs out. A lock that cannot do so is given back instead. */
  detach?(): unknown
}

/** Any lock that excludes others and can be lost. When the signal aborts nobody waits any more; a lease that comes all the same is released. */
export interface WorkerLock {
  /** The lease if the lock is free, null if somebody has it. */
  tryAcquire(signal: AbortSignal): Promise<WorkerLease | null>
  /** Waits for the lock, however long. */
  acquire(signal: AbortSignal): Promise<WorkerLease>
  /**
   * Resolves when nothing is left behind of what was aborted, so that the process may end. Waited for a few seconds at most. Left out
   * where nothing can be.
   */
  left?(): Promise<unknown>
}

export type LockAnswer =
  | { readonly type: 'granted'; readonly lease: WorkerLease }
  | { readonly type: 'busy' }
  | { readonly type: 'unavailable'; readonly error: unknown }

/**
 * Asks once, and answers unless it was left before. Checks and answers in one go, so a grant either arrives or is given
 * back: a promise actor of XState drops what settles while its state is left, and nobody would ever release it.
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

/** Lets a lock run out whose work does not end, so that the work has at least that long; also one that is lost already. */
export function letGo(lease: WorkerLease): void {
  const end = async () => (lease.detach === undefined ? lease.release() : lease.detach())
  end().catch(() => {})
}
