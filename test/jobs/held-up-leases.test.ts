import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

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
