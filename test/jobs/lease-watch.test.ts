import { expect, test } from 'vitest'
import { now, systemClock } from '../../src/base/clock.ts'
import type { SettleContext } from '../../src/jobs/claimed-job.ts'
import type { JobFacts } from '../../src/jobs/job.ts'
import { JobRun } from '../../src/jobs/job-run.ts'
import type { JobTables } from '../../src/jobs/job-tables.ts'
import { LeaseTime } from '../../src/jobs/lease-time.ts'
import { LeaseWatch } from '../../src/jobs/lease-watch.ts'
import { until } from '../servers/until.ts'

type Renewal = Awaited<ReturnType<JobTables['renew']>>

test('a renewal that finds a job gone is no loss if the job was settled before its answer came', async () => {
  const ttlMs = 12_000
  const newRun = (id: string) => {
    const facts = { id, name: 'a', attempt: 1 } as JobFacts
    return new JobRun(facts, {
      lease: new LeaseTime(now(systemClock), ttlMs),
      settling: {} as SettleContext,
    })
  }
  const settled = newRun('1')
  const cancelled = newRun('2')
  const runs = new Set([settled, cancelled])
  let answer: ((renewal: Renewal) => void) | undefined
  const renew = () => new Promise<Renewal>((resolve) => (answer = resolve))
  const watch = new LeaseWatch({
    runs,
    tables: { renew } as unknown as JobTables,
    ttlMs,
    maxRunMs: ttlMs,
    onLook: () => {},
    onError: () => {},
  })
  watch.start()
  try {
    await until('it renews', () => answer !== undefined)
    runs.delete(settled)
    answer?.({
      gone: [settled, cancelled].map(({ facts: { id, attempt } }) => ({ id, attempt })),
      skipped: [],
    })
    await until('the other one is lost', () => cancelled.isLost)
    expect(settled.signal.aborted).toBe(false)
  } finally {
    watch.stop()
  }
})
