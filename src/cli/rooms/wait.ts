import { isHoldfastError } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { interruption } from '../interruption.ts'
import { openToLook } from '../open-locks.ts'
import { findRoom } from '../room.ts'
import { placeOf } from '../store-option.ts'
import { complain } from '../terminal.ts'
import { WaitingLine } from '../waiting-line.ts'
import { whyBusy } from '../why-busy.ts'

export async function waitForKey(given: ParsedArguments): Promise<number> {
  const key = given.word('one KEY')
  const waitMs = given.duration('timeout') ?? Number.POSITIVE_INFINITY
  const interrupted = interruption()
  const place = await placeOf(given)
  await using locks = await openToLook(place.url)
  // Look without waiting first: a store that is away is then an error within seconds, even with an endless wait.
  const isFree = (await findRoom(locks, key)) === undefined
  // The signal may have come while the store was asked.
  interrupted.throwIfAborted()
  if (isFree) return EXIT.ok
  const line = new WaitingLine(locks, key)
  try {
    await locks.waitUntilFree(key, { wait: waitMs, signal: interrupted })
    interrupted.throwIfAborted()
    return EXIT.ok
  } catch (error) {
    if (!isHoldfastError(error, 'acquire-timeout')) throw error
    complain(await whyBusy(locks, { key, waitMs, place }))
    return EXIT.notAcquired
  } finally {
    line.end()
  }
}
