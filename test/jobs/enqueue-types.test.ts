import { Pool } from 'pg'
import { afterAll, expect, test } from 'vitest'
import type { DashboardOptions } from '../../src/dashboard/index.ts'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'

interface Payloads {
  mail: { to: string }
  resize: { path: string; width?: number }
  tick: null
  sweep: { all: boolean } | undefined
}

const pool = new Pool()
const jobs = createJobs<Payloads>(pool)
afterAll(async () => {
  await jobs.close()
  await pool.end()
})

/** This function is compiled and never called: `npm run types` checks that each call is accepted or refused. */
async function compiles(): Promise<void> {
  await jobs.enqueue('mail', { to: 'a' })
  await jobs.enqueue('mail', { to: 'a' }, { delay: '1m' })
  await jobs.enqueue('tick')
  await jobs.enqueue('tick', null, { key: 'tick' })
  await jobs.enqueue('sweep', undefined, { group: 'g' })
  await jobs.enqueueAll([
    { name: 'mail', payload: { to: 'a' }, priority: 1 },
    { name: 'resize', payload: { path: '/', width: 1 } },
    { name: 'tick' },
    { name: 'sweep' },
  ])
  // @ts-expect-error: its payload is required
  await jobs.enqueue('mail')
  // @ts-expect-error: the payload of another job
  await jobs.enqueue('mail', { path: '/' })
  // @ts-expect-error: a name that is none
  await jobs.enqueue('post', { to: 'a' })
  // @ts-expect-error: options where the payload is expected
  await jobs.enqueue('mail', { delay: '1m' })
  // @ts-expect-error: an option that is none
  await jobs.enqueue('mail', { to: 'a' }, { dely: '1m' })
  // @ts-expect-error: its payload is required
  await jobs.enqueueAll([{ name: 'mail' }])
  // @ts-expect-error: the payload of another job
  await jobs.enqueueAll([{ name: 'mail', payload: { path: '/' } }])
  // @ts-expect-error: a name that is none
  await jobs.enqueueAll([{ name: 'post', payload: { to: 'a' } }])
  // @ts-expect-error: an option that is none
  await jobs.enqueueAll([{ name: 'tick', dely: '1m' }])

  const untyped: Jobs = createJobs(pool)
  await untyped.enqueue('anything')
  await untyped.enqueue('anything', { of: 'any kind' }, { delay: 1 })
  await untyped.enqueueAll([{ name: 'anything' }, { name: 'else', payload: 1 }])
  const shown: DashboardOptions = { jobs }
  await shown.jobs?.count()
}

test('the compiler refuses a job without a property that it needs', () => {
  expect(compiles).toBeTypeOf('function')
})
