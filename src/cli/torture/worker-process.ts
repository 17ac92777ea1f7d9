/** One process of a torture run: uses every kind of lock at once, writes down what it sees, and ends when the faults are over. */
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, isHoldfastError, type Locks } from '../../index.ts'
import { monotonicMs } from '../machine-time.ts'
import { whenParentEnds } from '../parent-process.ts'
import { DUTY, type Duty, FREEZING, type Order, READY } from './assignment.ts'
import { lastRound } from './last-round.ts'
import { noteEvents } from './note-events.ts'
import type { WorkerRecord } from './record.ts'
import { Recorder, watchGaps } from './recorder.ts'
import { Tasks } from './tasks.ts'

const duty = JSON.parse(process.env[DUTY] ?? '') as Duty
const { worker, slot, storeUrl, folder, ttlMs, settleMs, startedAt } = duty
const now = () => monotonicMs() - startedAt
const history = new Recorder<WorkerRecord>(join(folder, `worker-${worker}.jsonl`))
const bornAt = now()
/** Aborts when the faults are over. */
const over = new AbortController()

process.on('message', (order: Order) => {
  switch (order.tag) {
    case 'freeze':
      process.send?.(FREEZING, () => process.kill(process.pid, 'SIGSTOP'))
      return
    case 'clock':
      setWallClock(order.aheadMs)
      return
    case 'last-round':
      over.abort()
      return
    default:
      order satisfies never
  }
})
whenParentEnds(() => process.exit())
// Ctrl-C reaches every process of the terminal. The parent decides when its workers end.
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => {})

history.add({ tag: 'start', at: now(), worker, slot })
watchGaps(now, (from, at) => history.add({ tag: 'gap', from, at }))
void main()

async function main(): Promise<void> {
  const locks = await connected()
  process.send?.(READY, () => {})
  noteEvents(locks, { history, now })
  const tasks = new Tasks(locks, { duty, history, now, over: over.signal })
  await tasks.run()
  // A process with a full history still takes each key once more, after the faults.
  if (!over.signal.aborted) await once(over.signal, 'abort')
  await lastRound(locks, { duty, history, now })
  tasks.close()
  await locks.close()
  history.close()
  process.exit()
}

/** A process may start while its connections are cut. */
async function connected(): Promise<Locks> {
  for (;;) {
    try {
      return await connect(storeUrl, { ttl: ttlMs, label: `torture ${worker}` })
    } catch (error) {
      if (!isHoldfastError(error, 'store-unavailable') || now() - bornAt > settleMs) throw error
      await sleep(200)
    }
  }
}

/** The wall clock of this process alone, as if somebody had set it. In whole milliseconds, as every `Date.now()` is. */
function setWallClock(aheadMs: number): void {
  Date.now = () => Math.floor(performance.timeOrigin + performance.now() + aheadMs)
}
