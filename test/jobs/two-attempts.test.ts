import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test.each(['old one first', 'new one first'])(
  'of two attempts of a job that complete it at once only the new one does, the %s',
  async (order) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    await jobs.enqueue('a', null, { backoff: 0 })
    const [old] = await jobs.claim('a', { ttl: '3s' })
    const current = await until('its lease is over', async () => (await jobs.claim('a'))[0])
    expect([old?.attempt, current.attempt]).toEqual([1, 2])
    // One statement settles both.
    const pair = order === 'old one first' ? [old, current] : [current, old]
    const settled = await Promise.allSettled(pair.map((job) => job?.complete()))
    const byAttempt = new Map(settled.map((result, n) => [pair[n]?.attempt, result]))
    expect(byAttempt.get(1)).toMatchObject({ status: 'rejected', reason: { code: 'lease-lost' } })
    expect(byAttempt.get(2)).toMatchObject({ status: 'fulfilled' })
    expect(await jobs.find(current.id)).toMatchObject({ state: 'completed', attempt: 2 })
  },
)

test.each([true, false])(
  'the database tells the old attempts of a job as lost, and only these (completed jobs are kept: %s)',
  async (keeps) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const ids = (await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }])) as string[]
    for (const job of await jobs.claim('a', { limit: 2 })) await job.giveBack()
    expect(await jobs.claim('a', { limit: 2 })).toMatchObject([{ attempt: 2 }, { attempt: 2 }])
    const [one, other] = ids
    const [row] = await scene.sql(`
      select $schema.jobs_settle('{${one},${one},${other}}', '{1,2,1}', null, '{}', null, ${keeps}, false) as answer`)
    const lost = ids.map((id) => ({ id, attempt: 1 }))
    expect(row?.['answer']).toEqual({ lost, busy: [], outcomes: [] })
    expect(await jobs.find(other ?? '')).toMatchObject({ state: 'running', attempt: 2 })
    expect((await jobs.find(one ?? ''))?.state).toBe(keeps ? 'completed' : undefined)
  },
)

test('a handler that gave its job back and goes on does no harm to the next attempt in the same worker', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const failures: JobFailure[] = []
  let endOld = (): void => {}
  const oldMayEnd = new Promise<void>((resolve) => {
    endOld = resolve
  })
  let wasAborted: boolean | undefined
  await jobs.enqueue('a')
  jobs.work(
    {
      a: async ({ id, attempt, signal, giveBack }) => {
        if (attempt === 1) {
          await giveBack()
          await oldMayEnd
          return
        }
        const [before] = await scene.sql(`select due_at from $schema.jobs where id = ${id}`)
        // Each of two renewals names both attempts. The second one comes after the answer to the first.
        await until('it was renewed twice', async () => {
          const [row] = await scene.sql(`select due_at from $schema.jobs where id = ${id}`)
          const renewedMs = Number(row?.['due_at']) - Number(before?.['due_at'])
          return signal.aborted || renewedMs > 2800
        })
        wasAborted = signal.aborted
        endOld()
      },
    },
    { ttl: '6s', onFailure: (failure) => failures.push(failure) },
  )
  await until('both attempts are over', () => wasAborted !== undefined)
  await until('it is completed', async () => (await jobs.count())[0]?.state === 'completed')
  expect([wasAborted, failures]).toEqual([false, []])
})

test('an attempt whose claim got no answer is delivered again beside an old attempt that is not over', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const attempts: number[] = []
  let lost: Promise<void> | undefined
  let endOld = (): void => {}
  const oldMayEnd = new Promise<void>((resolve) => {
    endOld = resolve
  })
  scene.open({}, { url }).work(
    {
      first: () => {},
      a: async ({ attempt, giveBack }) => {
        attempts.push(attempt)
        if (attempt > 1) return endOld()
        lost = proxy.loseNextReply('lossy')
        await giveBack()
        await oldMayEnd
      },
    },
    // The label is in every claim.
    { ttl: '1h', pollInterval: '10m', label: 'lossy', onError: () => {} },
  )
  // One of three jobs in a row comes by a message. From then on the worker claims only when it gets a message.
  for (let n = 0; n < 3; n += 1) {
    const first = (await direct.enqueue('first')) ?? ''
    await until('it is completed', async () => (await direct.find(first))?.state === 'completed')
  }
  const id = (await direct.enqueue('a')) ?? ''
  await until('it is completed', async () => (await direct.find(id))?.state === 'completed')
  await lost
  expect(attempts).toEqual([1, 2])
  expect(await direct.find(id)).toMatchObject({ attempt: 2, failures: 0 })
})

test('an attempt whose lease is over is not delivered again after a lost answer, because it may have run', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  await jobs.claim('a', { label: 'w' })
  await scene.sql(`update $schema.jobs set due_at = clock_timestamp() - interval '1 s'`)
  // Until this transaction ends, no claim can end the lost attempt.
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('parent', null, { children: [id], transaction: client })
  const recovered = () =>
    scene.sql(`select $schema.jobs_claim('{a}', 0, 0, 'w', 30000, '{}', '{}')::json -> 'jobs' as jobs`)
  expect(await recovered()).toEqual([{ jobs: [] }])
  await client.query('commit')
  expect(await recovered()).toEqual([{ jobs: [] }])
  expect(await jobs.find(id)).toMatchObject({ state: 'delayed', failures: 1 })
})
