import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Jobs } from '../../src/jobs/index.ts'
import type { Chosen, Repaired } from '../../src/jobs/job-tables.ts'
import type { JobViews } from '../../src/jobs/job-views.ts'
import { repair } from '../../src/jobs/selection.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** How many jobs there are in each state. */
async function states(jobs: Jobs): Promise<Record<string, number>> {
  return Object.fromEntries((await jobs.count()).map(({ name, state, count }) => [`${name} ${state}`, count]))
}

test('one job, some jobs and all jobs that fit a filter are retried, cancelled and removed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll([
    ...Array.from({ length: 1500 }, () => ({ name: 'a' })),
    ...Array.from({ length: 700 }, () => ({ name: 'b' })),
  ])) as string[]
  expect(await jobs.cancel({ name: 'a' }, { reason: 'too many' })).toHaveLength(1500)
  expect(await states(jobs)).toEqual({ 'a cancelled': 1500, 'b ready': 700 })
  expect(await jobs.find(ids[0] ?? '')).toMatchObject({ error: 'too many' })
  expect(await jobs.retry({ state: ['cancelled', 'ready'], id: ids.slice(0, 3) })).toHaveLength(3)
  expect(await jobs.remove(ids.slice(0, 1200))).toHaveLength(1197)
  expect(await states(jobs)).toEqual({ 'a cancelled': 300, 'a ready': 3, 'b ready': 700 })
  expect((await jobs.retry({ state: 'cancelled' })).toSorted()).toEqual(ids.slice(1200, 1500).toSorted())
  const [running] = await jobs.claim('b')
  expect(await jobs.cancel({ state: 'ready' }, { reason: 'x' })).toHaveLength(1002)
  expect(await states(jobs)).toEqual({ 'a cancelled': 303, 'b cancelled': 699, 'b running': 1 })
  await running?.complete()
  expect(await jobs.retry({ state: 'completed' })).toEqual([])
  expect(await jobs.retry(running?.id ?? '')).toEqual([])
  expect(await jobs.remove({ since: new Date(0) })).toHaveLength(1003)
  expect(await jobs.count()).toEqual([])
  expect(await jobs.retry([])).toEqual([])
})

test('a job that is being completed in an open transaction is not waited for longer than some seconds, and all others are cancelled', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll(Array.from({ length: 4 }, () => ({ name: 'a' })))) as string[]
  const [locked, other] = await jobs.claim('a', { limit: 2 })
  const client = await scene.connect()
  await client.query('begin')
  await locked?.complete({ transaction: client })
  const cancelling = jobs.cancel({ name: 'a' }, { reason: 'x' })
  await expect(cancelling).rejects.toMatchObject({
    code: 'store-unavailable',
    message: `Other open transactions have locked 1 of the jobs (${ids[0]}), their groups or their keys, so these were not cancelled. All others were. Call it again.`,
  })
  expect(await states(jobs)).toEqual({ 'a cancelled': 3, 'a running': 1 })
  await expect(other?.complete()).rejects.toMatchObject({ code: 'lease-lost' })
  // It is there as soon as the transaction ends.
  const again = jobs.cancel(ids, { reason: 'x' })
  await client.query('rollback')
  expect(await again).toEqual([ids[0]])
})

test('cancelling jobs of groups lets the next job of each group run', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll(
    Array.from({ length: 6 }, (_, n) => ({ name: 'a', group: `g${n % 2}` })),
  )) as string[]
  expect(await jobs.claim('a', { limit: 6 })).toHaveLength(2)
  expect(await jobs.cancel(ids.slice(0, 4), { reason: 'x' })).toEqual(ids.slice(0, 4))
  expect((await jobs.claim('a', { limit: 6 })).map(({ id }) => id)).toEqual(ids.slice(4))
})

test('jobs of a filter that change meanwhile into another state are left alone', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [id = ''] = (await jobs.enqueueAll([{ name: 'a' }])) as string[]
  const [row] = await scene.sql(`select $schema.jobs_cancel('{${id}}', '{delayed,running}', 'x') as answer`)
  expect(row?.['answer']).toEqual({ changed: [], busy: [] })
  expect(await jobs.find(id)).toMatchObject({ state: 'ready' })
})

/** Dead jobs with the keys k0, k1, … */
async function deadJobs(jobs: Jobs, count: number): Promise<readonly string[]> {
  const ids = await jobs.enqueueAll(
    Array.from({ length: count }, (_, n) => ({ name: 'a', key: `k${n}`, maxAttempts: 1 })),
  )
  const claimed = await jobs.claim('a', { limit: count })
  await Promise.all(claimed.map((job) => job.fail('x')))
  return ids as string[]
}

test('a job whose key an open transaction has enqueued is not retried, all others are, and that transaction goes on', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [first = '', second = ''] = await deadJobs(jobs, 3)
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('a', null, { key: 'k1', transaction: client })
  const retrying = jobs.retry({ state: 'dead' })
  const [result] = await Promise.allSettled([
    retrying,
    // It may wait for a key that the retry has just made ready, or the retry finds this key in use, too.
    jobs.enqueue('a', null, { key: 'k2', transaction: client }),
  ])
  expect(result).toMatchObject({
    status: 'rejected',
    reason: {
      code: 'store-unavailable',
      message: expect.stringMatching(/have locked [12] of the jobs/),
    },
  })
  expect(await jobs.find(first)).toMatchObject({ state: 'ready', failures: 0 })
  expect(await jobs.find(second)).toMatchObject({ state: 'dead' })
  await client.query('rollback')
  expect(await jobs.retry({ state: 'dead' })).toContain(second)
  expect(await states(jobs)).toEqual({ 'a ready': 3 })
})

test('a repair of which each round changes a part goes on for as long as that is so', async () => {
  const selection = Array.from({ length: 8 }, (_, n) => String(n + 1))
  const change = async ({ ids }: Chosen): Promise<Repaired> => {
    await sleep(200)
    return { changed: ids.slice(0, 1), busy: ids.slice(1) }
  }
  const views = {} as JobViews
  expect(await repair(views, { selection, from: ['dead'], done: 'made ready', change })).toEqual(selection)
})

test('jobs are retried behind many whose keys an open transaction has enqueued', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await deadJobs(jobs, 33)
  const client = await scene.connect()
  await client.query('begin')
  const held = Array.from({ length: 30 }, (_, n) => ({ name: 'a', key: `k${n}` }))
  await jobs.enqueueAll(held, { transaction: client })
  await expect(jobs.retry(ids)).rejects.toMatchObject({ code: 'store-unavailable' })
  expect(await states(jobs)).toEqual({ 'a dead': 30, 'a ready': 3 })
  await client.query('commit')
  // The new jobs with these keys wait.
  expect(await jobs.retry(ids)).toEqual([])
})
