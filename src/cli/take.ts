import { isHoldfastError, type Lease, type Locks } from '../index.ts'
import { waitsForItself } from './own-hold.ts'
import type { TakePlan } from './take-plan.ts'
import { json } from './text.ts'
import { UsageError } from './usage-error.ts'
import { WaitingLine } from './waiting-line.ts'

/** `null` when the key was not free in time. */
export async function take(locks: Locks, plan: TakePlan, signal: AbortSignal): Promise<Lease | null> {
  const { ttlMs: ttl, minHoldMs: minHold, lockDelayMs: lockDelay } = plan
  const options = { ttl, minHold, lockDelay, signal }
  const startedAt = performance.now()
  // Try without waiting first: a store that is away is then an error within seconds, even with an endless wait.
  const lease = await tryToTake(locks, plan, options).catch((error: unknown) => {
    if (isReadyWithin(error, plan.waitMs)) return null
    throw error
  })
  if (lease !== null || plan.waitMs === 0) return lease
  if (await waitsForItself(locks, plan)) {
    throw new UsageError(
      `Expected a key that this command does not run under already, got ${json(plan.key)}: it would wait for itself.`,
    )
  }
  const wait = Math.max(0, plan.waitMs - (performance.now() - startedAt))
  const line = new WaitingLine(locks, plan.key)
  try {
    return await waitToTake(locks, plan, { ...options, wait })
  } catch (error) {
    if (isHoldfastError(error, 'acquire-timeout')) return null
    throw error
  } finally {
    line.end()
  }
}

/** Whether the store says when it can answer, and that is in time: new Redlock servers, whose votes do not count yet. */
function isReadyWithin(error: unknown, waitMs: number): boolean {
  return (
    isHoldfastError(error, 'store-unavailable') && (error.retryAfterMs ?? Number.POSITIVE_INFINITY) < waitMs
  )
}

type TakeOptions = NonNullable<Parameters<Locks['tryAcquire']>[1]>

function tryToTake(locks: Locks, { key, shape }: TakePlan, options: TakeOptions): Promise<Lease | null> {
  switch (shape.tag) {
    case 'exclusive':
      return locks.tryAcquire(key, options)
    case 'shared':
      return locks.readWrite(key).tryAcquireRead(options)
    case 'permits':
      return locks.semaphore(key, shape.permits).tryAcquire({ ...options, units: shape.units })
    default:
      return shape satisfies never
  }
}

function waitToTake(
  locks: Locks,
  { key, shape }: TakePlan,
  options: TakeOptions & { wait: number },
): Promise<Lease> {
  switch (shape.tag) {
    case 'exclusive':
      return locks.acquire(key, options)
    case 'shared':
      return locks.readWrite(key).acquireRead(options)
    case 'permits':
      return locks.semaphore(key, shape.permits).acquire({ ...options, units: shape.units })
    default:
      return shape satisfies never
  }
}
