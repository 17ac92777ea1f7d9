import { AsyncLocalStorage } from 'node:async_hooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMPLETED } from '../../src/jobs/claimed-job.ts'
import type { Jobs, RunningJob } from '../../src/jobs/index.ts'
import type { JobTables } from '../../src/jobs/job-tables.ts'
import { SettlementQueue } from '../../src/jobs/settlement-queue.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const tenant = new AsyncLocalStorage<string>()

const HANDLERS: Record<string, (job: RunningJob, jobs: Jobs) => Promise<unknown>> = {
  'settles its job and goes on': (job, jobs) =>
    tenant.run('of a job', async () => {
      await job.complete()
      await jobs.count()
    }),
  'enters a context without leaving it': async (job) => {
    tenant.enterWith('of a job')
    await job.complete()
  },
  'fails, with a listener that enters a context': () => Promise.reject(new Error('no')),
}

test.each(Object.entries(HANDLERS))(
  'no handler begins in the async context of the caller of `work`, or of another handler that %s',
  async (_how, handle) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const pairs = Array.from({ length: 100 }, () => [{ name: 'own', maxAttempts: 1 }, { name: 'plain' }])
    await jobs.enqueueAll(pairs.flat())
    const seen: unknown[] = []
    const handlers = {
      own: (job: RunningJob) => {
        seen.push(tenant.getStore())
        return handle(job, jobs)
      },
      plain: () => {
        seen.push(tenant.getStore())
      },
    }
    const onFailure = () => tenant.enterWith('of a failure')
    tenant.run('of the caller', () => jobs.work(handlers, { concurrency: 2, onFailure }))
    await until('all have begun', () => seen.length === pairs.length * 2)
    expect(new Set(seen)).toEqual(new Set([undefined]))
  },
)

test('a statement that settles jobs, and may claim others, runs outside the async context of a handler', async () => {
  const seen: unknown[] = []
  const settle = async () => {
    seen.push(tenant.getStore())
    return { lost: [], busy: [], outcomes: [] }
  }
  const queue = new SettlementQueue({ settle } as unknown as JobTables, { keepsCompleted: true })
  await tenant.run('of a job', () => queue.settle({ id: '1', attempt: 1, group: null }, COMPLETED))
  expect(seen).toEqual([undefined])
})
