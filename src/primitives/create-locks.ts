import { checkOptions, expected } from '../base/arguments.ts'
import { systemClock } from '../base/clock.ts'
import type { Store } from '../contract/store.ts'
import { Engine } from '../engine/engine.ts'
import { chance, describeOwner, nextTicketId } from '../engine/ids.ts'
import { InvalidArgumentError } from '../errors.ts'
import { Locks } from './locks.ts'
import { type LocksOptions, parseSettings, TAKES } from './options.ts'

/**
 * Locks over a store. Make one object per process and store, and share it: one request renews many of its leases, and its
 * waiters share one subscription.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { sqliteStore } from 'holdfast/sqlite'
 *
 * const locks = createLocks(sqliteStore('./locks.db'))
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the store or an option is not valid.
 */
export function createLocks(store: Store, options: LocksOptions = {}): Locks {
  if (typeof store === 'string') {
    // Never show it: it may hold a password.
    throw new InvalidArgumentError(
      'Expected `store` to be a store, got a string. For a URL use `await connect(url)`.',
    )
  }
  if (typeof store?.acquire !== 'function') {
    throw expected('store', 'a store, such as memoryStore() or redisStore(client)', store)
  }
  checkOptions(options, TAKES.locks)
  const { label, ...settings } = options
  if (label !== undefined && (typeof label !== 'string' || label.length > LONGEST_LABEL)) {
    throw expected('label', `a text of at most ${LONGEST_LABEL} characters`, label)
  }
  const engine = new Engine(store, { clock: systemClock, chance })
  return new Locks(
    { engine, owner: describeOwner(label), nextId: nextTicketId },
    parseSettings(settings, TAKES.locks),
  )
}

/** The label is stored with every ticket of this process. */
const LONGEST_LABEL = 500
