import type { ParsedArguments } from '../arguments.ts'
import { interruption } from '../interruption.ts'
import { openLocks } from '../open-locks.ts'
import { placeOf } from '../store-option.ts'
import { take } from '../take.ts'
import { LEAST_TTL_MS, type TakePlan, takePlanOf } from '../take-plan.ts'
import { complain } from '../terminal.ts'
import { UsageError } from '../usage-error.ts'
import { whyBusy } from '../why-busy.ts'
import { handOn } from './lease-option.ts'

export async function acquireLease(given: ParsedArguments): Promise<number> {
  const plan = planOf(given)
  const interrupted = interruption()
  const place = await placeOf(given)
  await using locks = await openLocks(place.url, { label: given.text('label') ?? 'holdfast acquire' })
  const lease = await take(locks, plan, interrupted)
  if (lease === null) {
    complain(await whyBusy(locks, { ...plan, place }))
    return plan.busyCode
  }
  // The signal came together with the key. Whoever ended this command does not read the lease.
  if (interrupted.aborted) {
    await lease.release()
    throw interrupted.reason
  }
  return handOn(lease, given)
}

function planOf(given: ParsedArguments): TakePlan {
  const key = given.word('one KEY')
  const ttlMs = given.duration('ttl', { leastMs: LEAST_TTL_MS })
  if (ttlMs === undefined) {
    throw new UsageError(
      'Expected --ttl followed by DURATION, got nothing: this command ends at once, and nobody renews the key.',
    )
  }
  return { ...takePlanOf(given), key, ttlMs }
}
