import { type HoldfastErrorCode, isHoldfastError } from '../../src/errors.ts'
import type { Member } from './member.ts'
import type { World } from './world.ts'

/** The error of an application. The library has to pass it on as it is. */
export class OwnError extends Error {
  override readonly name = 'OwnError'
}

export interface Bounds {
  /** An `AcquireTimeoutError` may not come before this time. */
  readonly timeoutMs?: number
  /** The call settles within this time, in a process that is not paused meanwhile. */
  readonly mostMs?: number
}

/** Calls the library in a process. The call has to settle in its time, and may fail only for a reason that exists. */
export async function call<T>(
  world: World,
  member: Member,
  label: string,
  bounds: Bounds,
  ask: () => Promise<T>,
): Promise<T | undefined> {
  const { process, pending } = member
  world.calls += 1
  const name = `${label} #${world.calls}`
  const verb = label.split(' ')[0] ?? ''
  const startedAt = process.clock.monotonicMs()
  const pauses = process.pauses
  world.trace.note(member.name, 'calls', name)
  pending.add(name)
  try {
    const value = await ask()
    world.trace.note(member.name, 'done', name)
    world.count(`${verb} done`)
    return value
  } catch (error) {
    world.trace.note(member.name, 'failed', name, error)
    world.count(`${verb} ${isHoldfastError(error) ? error.code : 'own error'}`)
    if (!isExpected(world, member, error))
      world.report('error', `${member.name} ${name} failed with ${error}`)
    const elapsed = process.clock.monotonicMs() - startedAt
    if (isHoldfastError(error, 'acquire-timeout') && elapsed < (bounds.timeoutMs ?? 0) - EARLY_MS)
      world.report('patience', `${member.name} ${name} timed out after ${elapsed.toFixed(3)} ms`)
    return undefined
  } finally {
    pending.delete(name)
    const elapsed = process.clock.monotonicMs() - startedAt
    if (process.pauses === pauses && process.upToDate && elapsed > (bounds.mostMs ?? Infinity) + LATE_MS)
      world.report('patience', `${member.name} ${name} took ${elapsed.toFixed(3)} ms`)
  }
}

/** Timers count whole milliseconds, and fire late by a few. */
const LATE_MS = 25
const EARLY_MS = 1

function isExpected(world: World, member: Member, error: unknown): boolean {
  if (error instanceof OwnError) return true
  if (!isHoldfastError(error)) return false
  const always: readonly HoldfastErrorCode[] = ['acquire-timeout', 'lease-lost', 'deadlock']
  if (always.includes(error.code)) return true
  if (error.code === 'closed') return member.closed
  if (error.code === 'store-refused') return world.plan.faults.has('store refuses')
  return error.code === 'store-unavailable' && world.plan.faults.size > 0
}
