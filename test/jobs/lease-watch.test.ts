import { expect, test } from 'vitest'
import { now, systemClock } from '../../src/base/clock.ts'
import type { SettleContext } from '../../src/jobs/claimed-job.ts'
import type { JobFacts } from '../../src/jobs/job.ts'
import { JobRun } from '../../src/jobs/job-run.ts'
import type { JobTables } from '../../src/jobs/job-tables.ts'
import { LeaseTime } from '../../src/jobs/lease-time.ts'
import { LeaseWatch } from '../../src/jobs/lease-watch.ts'
import { block } from '../engine/block.ts'
import { until } from '../servers/until.ts'

type Renewal = Awaited<ReturnType<JobTables['renew']>>

test('a renewal that finds a job gone is no loss if the job was settled before its answer came', async () => {
  await using at = startWatch(12_000)
  const [settled, cancelled] = at.pair
  await until('it renews', () => at.answer !== undefined)
  at.runs.delete(settled)
  at.answer?.({ gone: at.pair.map(attemptOf), skipped: [] })
  await until('the other one is lost', () => cancelled.isLost)
  expect(settled.signal.aborted).toBe(false)
})

test('an answer that confirms one job counts while a listener of another one, which is gone, works', async () => {
  await using at = startWatch(6000)
  const [gone, confirmed] = at.pair
  const deadline = performance.now() + confirmed.remainingMs
  for (const run of at.pair) run.begin()
  gone.signal.addEventListener('abort', () => {
    // The new deadline comes a second later.
    block(deadline - performance.now() + 10)
    expect(confirmed.job.signal.aborted).toBe(false)
  })
  await until('it renews', () => at.answer !== undefined)
  at.answer?.({ gone: [attemptOf(gone)], skipped: [] })
  await until('the one is lost', () => gone.isLost)
  expect(confirmed.isLost).toBe(false)
})

test('messages of cancelled jobs renew at once, and add no looks', async () => {
  let renewals = 0
  const renew = async (): Promise<Renewal> => {
    renewals += 1
    return { gone: [], skipped: [] }
  }
  const begunAt = performance.now()
  await using at = startWatch(12_000, renew)
  for (let count = 1; count <= 20; count += 1) {
    at.watch.renewSoon()
    at.watch.renewSoon()
    await until('it renews', () => renewals === count)
  }
  expect(at.looks).toBeLessThanOrEqual((performance.now() - begunAt) / 240)
})

/** Two jobs whose leases are watched, and the answer of their first renewal in the hands of the test. */
function startWatch(ttlMs: number, renewal?: () => Promise<Renewal>) {
  const newRun = (id: string) => {
    const facts = { id, name: 'a', attempt: 1 } as JobFacts
    return new JobRun(facts, {
      lease: new LeaseTime(now(systemClock), ttlMs),
      settling: {} as SettleContext,
    })
  }
  const pair = [newRun('1'), newRun('2')] as const
  const runs = new Set<JobRun>(pair)
  let answer: ((renewal: Renewal) => void) | undefined
  const renew = renewal ?? (() => new Promise<Renewal>((resolve) => (answer ??= resolve)))
  let looks = 0
  const watch = new LeaseWatch({
    runs,
    tables: { renew } as unknown as JobTables,
    ttlMs,
    maxRunMs: 12_000,
    onLook: () => {
      looks += 1
    },
    onError: () => {},
  })
  watch.start()
  return {
    pair,
    runs,
    watch,
    get looks() {
      return looks
    },
    get answer() {
      return answer
    },
    async [Symbol.asyncDispose]() {
      watch.stop()
    },
  }
}

function attemptOf({ facts: { id, attempt } }: JobRun): Renewal['gone'][number] {
  return { id, attempt }
}
