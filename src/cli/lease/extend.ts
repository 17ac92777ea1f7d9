import type { ParsedArguments } from '../arguments.ts'
import { openLocks } from '../open-locks.ts'
import { placeOf } from '../store-option.ts'
import { LEAST_TTL_MS } from '../take-plan.ts'
import { adoptGiven, givenLease, handOnExtended } from './lease-option.ts'

export async function extendLease(given: ParsedArguments): Promise<number> {
  const known = givenLease(given)
  const ttl = given.duration('ttl', { leastMs: LEAST_TTL_MS })
  const { url } = await placeOf(given)
  await using locks = await openLocks(url)
  return handOnExtended(await adoptGiven(locks, known, { ttl }), given)
}
