import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openLocks } from '../open-locks.ts'
import { findRoom } from '../room.ts'
import { placeOf } from '../store-option.ts'
import { complain } from '../terminal.ts'
import { json } from '../text.ts'
import { adoptGiven, givenLease } from './lease-option.ts'

export async function releaseLease(given: ParsedArguments): Promise<number> {
  const known = givenLease(given)
  const { url } = await placeOf(given)
  await using locks = await openLocks(url)
  let isAnswered = true
  locks.on('store-error', ({ verb }) => {
    if (verb === 'release') isAnswered = false
  })
  // Fails where the lease was lost in between, which whoever worked under it has to know.
  const lease = await adoptGiven(locks, known)
  await lease.release()
  if (isAnswered) return EXIT.ok
  // A release never fails, but without an answer nobody knows whether the key is free.
  const room = await findRoom(locks, lease.key)
  if (room?.holders.some(({ id, state }) => id === lease.id && state === 'held') !== true) return EXIT.ok
  complain(`the store did not answer: ${json(lease.key)} may stay taken until its ttl is over`)
  return EXIT.storeUnavailable
}
