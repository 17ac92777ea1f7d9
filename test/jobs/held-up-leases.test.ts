import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('children that ended before `maxRun` end as their handlers did, once, however long a transaction that has enqueued their parent is open', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const good = (await jobs.enqueue('good', null, { backoff: 0 })) ?? ''
  const bad = (await jobs.enqueue('bad', null, { maxAttempts: 1 })) ?? ''
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('parent', null, { children: [good, bad], transaction: client })
  const runs: string[] = []
  const failures: JobFailure[] = []
  jobs.work(
    {
      good: () => runs.push('good'),
      bad: () => {
        runs.push('bad')
        throw new Error('bad address')
      },
    },
    {
      maxRun: 1000,
      ttl: '2s',
      onFailure: (failure) => failures.push(failure),
      onError: () => {},
    },
  )
  await until('both run', () => runs.length === 2)
  // After `maxRun` it takes two leases until the worker gives up, and one settlement that is held up.
  const openUntil = performance.now() + 9000
  await until('the worker would have given up', () => performance.now() > openUntil)
  await client.query('commit')
  await until('both are settled', async () =>
    (await jobs.count()).every(
      ({ name, state }) => name === 'parent' || !['ready', 'running'].includes(state),
    ),
  )
  expect(await jobs.find(good)).toMatchObject({ state: 'completed', attempt: 1 })
  expect(await jobs.find(bad)).toMatchObject({ state: 'dead', error: expect.stringContaining('bad address') })
  await until('the failure is told', () => failures.length > 0)
  expect(failures).toMatchObject([{ outcome: 'dead', error: { message: 'bad address' } }])
  expect(runs.sort()).toEqual(['bad', 'good'])
})

/** What a worker that has forgotten all of its jobs gets once more. */
async function recovered(scene: JobsScene): Promise<{ jobs: unknown[]; earlier_runs: boolean }> {
  const [row] = await scene.sql(`select $schema.jobs_claim('{a}', 0, 0, 'w', 30000, '{}', '{}') as answer`)
  return JSON.parse(String(row?.['answer']))
}

test('an attempt whose lease was over is not delivered once more while its end has to wait', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a', null, { group: 'g', maxAttempts: 1 })
  await scene.sql(`select $schema.jobs_claim('{a}', 1, 0, 'w', 10, null, null)`)
  await until('its lease is over', async () => {
    const [row] = await scene.sql('select due_at < now() as over from $schema.jobs')
    return row?.['over'] === true
  })
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select pg_advisory_xact_lock(${scene.schema}.jobs_group_lock('g'))`)
  expect(await recovered(scene)).toMatchObject({ jobs: [], earlier_runs: false })
  expect(await recovered(scene)).toMatchObject({ jobs: [], earlier_runs: false })
  await other.query('rollback')
  await until('the attempt has failed', async () => {
    await recovered(scene)
    return (await jobs.count()).every(({ state }) => state === 'dead')
  })
})

test('a job of a lost answer that another transaction has locked is asked for again', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a')
  await scene.sql(`select $schema.jobs_claim('{a}', 1, 0, 'w', 3600000, null, null)`)
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select from ${scene.schema}.jobs for update`)
  expect(await recovered(scene)).toMatchObject({ jobs: [], earlier_runs: true })
  await other.query('rollback')
  const { jobs: delivered, earlier_runs: isIncomplete } = await recovered(scene)
  expect([delivered.length, isIncomplete]).toEqual([1, false])
})
