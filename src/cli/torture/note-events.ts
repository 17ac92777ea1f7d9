import type { Locks } from '../../index.ts'
import type { WorkerRecord } from './record.ts'
import type { Recorder } from './recorder.ts'

export interface Notes {
  readonly history: Recorder<WorkerRecord>
  /** Milliseconds since the start of the run. */
  readonly now: () => number
}

/** Writes down what the locks tell of every request and lease. */
export function noteEvents(locks: Locks, { history, now }: Notes): void {
  locks.on('requested', ({ id, key, units, limit }) => {
    const bounded = limit === Number.MAX_SAFE_INTEGER ? null : limit
    history.add({ tag: 'asked', at: now(), id, key, units, limit: bounded })
  })
  locks.on('queued', ({ id }) => history.add({ tag: 'queued', at: now(), id }))
  locks.on('acquired', ({ id, fence }) => history.add({ tag: 'granted', at: now(), id, fence: `${fence}` }))
  locks.on('released', ({ id }) => history.add({ tag: 'released', at: now(), id }))
  locks.on('busy', ({ id }) => history.add({ tag: 'gave-up', at: now(), id, why: 'busy' }))
  locks.on('timeout', ({ id }) => history.add({ tag: 'gave-up', at: now(), id, why: 'timeout' }))
  locks.on('withdrawn', ({ id, reason }) => history.add({ tag: 'gave-up', at: now(), id, why: reason }))
}
