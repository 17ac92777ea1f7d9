import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../base/thrown.ts'
import type { Locks } from '../../index.ts'
import { type Duty, takenKeys } from './assignment.ts'
import type { Notes } from './note-events.ts'

/**
 * After the last fault each process takes each key once more. So the history shows who did not come back, although nothing was
 * in the way any more.
 */
export async function lastRound(
  locks: Locks,
  { duty, ...notes }: Notes & { readonly duty: Duty },
): Promise<void> {
  await Promise.all(takenKeys(duty.prefix, duty).map((key) => take(key)))

  async function take(key: string): Promise<void> {
    let error: string | null = null
    // The call itself may hang, if the store does.
    const late = sleep(duty.settleMs + GRACE_MS, 'late' as const, { ref: false })
    const taken = locks.acquire(key, { wait: duty.settleMs }).then(
      (lease) => lease.release(),
      (thrown) => {
        error = messageOf(thrown)
      },
    )
    if ((await Promise.race([taken, late])) === 'late') error = 'the call did not end'
    notes.history.add({ tag: 'took-last', at: notes.now(), key, error })
  }
}

const GRACE_MS = 2000
