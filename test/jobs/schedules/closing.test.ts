import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { awakeMs } from '../../base/measured.ts'
import { bundled } from '../../servers/bundled.ts'
import { until } from '../../servers/until.ts'
import { closeSharedServer, sharedServer } from '../scene.ts'
import { letPass, openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const run = promisify(execFile)
const HOUR_S = 3600

test('a process that fires schedules ends when its jobs are closed, and reports no error', async () => {
  await using at = await openSchedules()
  const { server, schema } = at.scene
  await at.schedules.add('a', { job: 'j', every: '1h' })
  await letPass(at.scene, HOUR_S)
  const program = await bundled(new URL('closing-process.ts', import.meta.url))
  // Less than the pause until the next look at the schedules.
  const { stdout } = await run(process.execPath, [program, server.url, schema], { timeout: 20_000 })
  expect(stdout.trim().split('\n')).toEqual(['closed', 'exit'])
})

test('to close the jobs waits for the round that fires, and tells of its jobs', async () => {
  const told: unknown[] = []
  await using at = await openSchedules({
    onFire: ({ jobId }) => told.push(jobId),
    onError: (error) => told.push(error),
  })
  const { scene, schedules, jobs } = at
  await schedules.add('a', { job: 'j', every: '1h' })
  await letPass(scene, HOUR_S)
  const client = await scene.connect()
  await client.query('select pg_advisory_lock(42)')
  // No wait for a lock: our statements may give up such a wait after a moment.
  await scene.sql(`create function $schema.slow() returns trigger language plpgsql as $$
    begin
      while not pg_try_advisory_xact_lock_shared(42) loop
        perform pg_sleep(0.01);
      end loop;
      return new;
    end $$`)
  await scene.sql(`create trigger slow before update on $schema.job_schedules
    for each row execute function $schema.slow()`)
  schedules.start()
  await until('it fires', async () => {
    const rows = await scene.sql(
      `select from pg_stat_activity where wait_event = 'PgSleep' and query like '%${scene.schema}%'`,
    )
    return rows.length > 0
  })
  const closing = jobs.close()
  await client.query('select pg_advisory_unlock(42)')
  await closing
  const enqueued = await scene.sql('select id::text from $schema.jobs')
  expect(told).toEqual(enqueued.map(({ id }) => id))
  expect(told).toHaveLength(1)
})

test('to close the jobs waits no longer than the grace for a database that does not answer', async () => {
  await using at = await openSchedules({ onError: () => {} })
  const { scene, schedules, jobs } = at
  await schedules.add('a', { job: 'j', every: '1h' })
  await letPass(scene, HOUR_S)
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`lock table ${scene.schema}.job_schedules`)
  schedules.start()
  await until('it waits for the lock', async () => {
    const rows = await scene.sql(
      `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%${scene.schema}%'`,
    )
    return rows.length > 0
  })
  expect(await awakeMs(() => jobs.close({ grace: 100 }))).toBeLessThan(8000)
  await client.query('rollback')
})
