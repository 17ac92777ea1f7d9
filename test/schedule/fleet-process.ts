// One process of a fleet: a job for every second, a clock that may be wrong, and a journal that all processes write
// into.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Clock } from '../../src/index.ts'
import { createSchedule } from '../../src/schedule/index.ts'
import { connectForMarks } from './connect-for-marks.ts'

const [url = '', journal = '', aheadMs = ''] = process.argv.slice(2)

const clock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now() + Number(aheadMs),
  startTimer(delayMs, fire) {
    const timeout = setTimeout(fire, delayMs)
    return {
      stop: () => clearTimeout(timeout),
      keepAlive: () => {},
    }
  },
}

const locks = await connectForMarks(url)
// The process stops itself. So the test knows where it stops: in the middle of its work.
let isToFreeze = false
process.on('message', (message) => {
  isToFreeze = message === 'freeze'
})

const schedule = createSchedule(locks, { clock, onError: () => {} })
schedule.add(
  'fleet',
  '* * * * * *',
  { missed: 'all', catchUp: '1m', overlap: 'queue', ttl: '6s' },
  async ({ scheduledAt, fence, lease }) => {
    const note = (what: string) =>
      appendFileSync(journal, `${what} ${scheduledAt.toISOString()} ${fence} ${process.pid}\n`)
    note('begin')
    process.send?.('begin')
    if (isToFreeze) {
      isToFreeze = false
      note('freeze')
      process.kill(process.pid, 'SIGSTOP')
    }
    await sleep(Math.random() * 100)
    // Checks the lease, as work should before a step that cannot be taken back: the process may have stood still for
    // longer than its lease.
    lease.assertHeld()
    note('end')
  },
)
schedule.start()

process.on('SIGTERM', async () => {
  await schedule.stop()
  await locks.close()
  process.disconnect?.()
})
process.on('disconnect', () => process.exit())
