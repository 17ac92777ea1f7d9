import { expected } from '../base/arguments.ts'
import { LONGEST_MS } from '../base/duration.ts'
import type { Locks } from '../index.ts'

/** What node-cron 4.4 and later asks, as its `RunCoordinator`, before it runs a task that is `distributed`. */
export interface NodeCronRunCoordinator {
  /** Whether this process runs the fire. One process in the fleet gets `true`. */
  shouldRun(key: string, ttlMs: number): Promise<boolean>
}

/**
 * Lets node-cron's `distributed` tasks run once per fire across the fleet, over any store: for programs that have node-cron
 * already, and want nothing else of {@link createSchedule}. The first instance that asks for a fire runs it. The answer is
 * remembered for 10 minutes or the task's `distributedLease`, whichever is longer, and not only while the task runs, as an
 * instance whose clock is slow asks later. A fire whose instance dies is lost: node-cron has nobody take it over.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { nodeCronCoordinator } from 'holdfast/schedule'
 *
 * const coordinator = nodeCronCoordinator(await connect('redis://localhost:6379'))
 * // import cron, { setRunCoordinator } from 'node-cron'
 * // setRunCoordinator(coordinator)
 * // cron.schedule('0 3 * * *', backup, { name: 'nightly-backup', distributed: true })
 * console.log(await coordinator.shouldRun('nightly-backup:2026-11-21T03:00:00.000Z', 30_000))
 * ```
 *
 * When the store cannot be asked for 5 s, `shouldRun` rejects with a {@link StoreError}, and node-cron skips the fire.
 */
export function nodeCronCoordinator(locks: Locks): NodeCronRunCoordinator {
  if (typeof locks?.tryAcquire !== 'function') {
    throw expected('locks', 'what createLocks(…) or connect(…) returns', locks)
  }
  return {
    async shouldRun(key, ttlMs) {
      const ttl = Math.min(Math.max(ttlMs || 0, REMEMBER_MS), LONGEST_MS)
      const mark = await locks.tryAcquire(`node-cron:${key}`, { ...MARK, ttl })
      mark?.detach()
      return mark !== null
    },
  }
}

const REMEMBER_MS = 600_000
/** A fire outlives a restart of the store, so this asks again also while no server is there. */
const MARK = { renew: false, minHold: 0, lockDelay: 0, storeTimeout: '5s' } as const
