import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobView } from '../../src/jobs/index.ts'
import { JOB_STATES } from '../../src/jobs/job.ts'
import { listStatement } from '../../src/jobs/job-views.ts'
import { inSchema } from '../../src/postgres/migrations.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const idsOf = (jobs: readonly JobView[]) => jobs.map(({ id }) => id)

async function collected(jobs: AsyncIterable<JobView>): Promise<JobView[]> {
  const all: JobView[] = []
  for await (const job of jobs) all.push(job)
  return all
}

test('pages go from the newest job to the oldest one, whatever is enqueued and ends meanwhile', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll(Array.from({ length: 5 }, () => ({ name: 'a' })))) as string[]
  const newestFirst = ids.toReversed()
  const first = await jobs.list({ limit: 2 })
  expect([idsOf(first.jobs), first.next]).toEqual([newestFirst.slice(0, 2), newestFirst[1]])
  await jobs.enqueue('a')
  const [oldest] = await jobs.claim('a')
  await oldest?.complete()
  const second = await jobs.list({ limit: 2, after: first.next ?? '' })
  expect(idsOf(second.jobs)).toEqual(newestFirst.slice(2, 4))
  const last = await jobs.list({ limit: 2, after: second.next ?? '' })
  expect([idsOf(last.jobs), last.next]).toEqual([newestFirst.slice(4), null])
  expect(last.jobs[0]).toMatchObject({ state: 'completed', endedAt: expect.any(Date) })
  expect(last.jobs[0]).not.toHaveProperty('payload')
  // A page that is just full is the last one if nothing follows.
  expect((await jobs.list({ limit: 6 })).next).toBeNull()
})

test('a list is filtered by state, name, id and time, each alone and all together', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [one = '', two = '', three = '', four = ''] = (await jobs.enqueueAll([
    { name: 'a' },
    { name: 'b', delay: '1h' },
    { name: 'a', delay: '1h' },
    { name: 'a' },
  ])) as string[]
  const [claimed] = await jobs.claim('a')
  await claimed?.complete()
  await scene.sql(`update $schema.jobs set enqueued_at = '2026-01-01T00:00Z' where id = ${two}`)
  await scene.sql(`update $schema.jobs set enqueued_at = '2026-01-02T00:00Z' where id = ${three}`)
  const listed = async (...filter: Parameters<typeof jobs.list>) => idsOf((await jobs.list(...filter)).jobs)
  expect(await listed({ state: 'completed' })).toEqual([one])
  expect(await listed({ state: ['completed', 'delayed'] })).toEqual([three, two, one])
  expect(await listed({ name: 'a' })).toEqual([four, three, one])
  expect(await listed({ name: ['b', 'nobody'] })).toEqual([two])
  expect(await listed({ id: [four, one, '999999'] })).toEqual([four, one])
  expect(await listed({ before: new Date('2026-01-02T00:00Z') })).toEqual([two])
  expect(
    await listed({ since: new Date('2026-01-02T00:00Z'), before: new Date('2026-01-03T00:00Z') }),
  ).toEqual([three])
  expect(await listed({ state: 'delayed', name: 'a', id: [two, three] })).toEqual([three])
  expect(await listed({ state: [] })).toEqual([])
  expect(idsOf(await collected(jobs.inspect({ state: 'delayed' })))).toEqual([three, two])
})

test('inspect goes over all pages', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll(
    Array.from({ length: 2203 }, (_, n) => ({ name: `n${n % 2}` })),
  )) as string[]
  expect(idsOf(await collected(jobs.inspect()))).toEqual(ids.toReversed())
  expect(await collected(jobs.inspect({ name: 'n1', state: ['ready', 'dead'] }))).toHaveLength(1101)
  expect(await jobs.count()).toMatchObject([
    { name: 'n0', state: 'ready', count: 1102 },
    { name: 'n1', state: 'ready', count: 1101 },
  ])
})

test('a job shows its payload, and of every failed attempt the error with its stack, the times and the worker', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a', { to: '\0' }, { backoff: 0, maxAttempts: 3 })) ?? ''
  expect(await jobs.find(id)).toMatchObject({ payload: { to: '\0' }, failedAttempts: [] })
  const [first] = await jobs.claim('a', { label: 'web-1' })
  await first?.fail(new TypeError('no such address\0'))
  // The second worker dies. Its lease is over at once: a claim with a short ttl is refused if its answer comes later than that.
  await jobs.claim('a', { label: 'web-2' })
  await scene.sql(`update $schema.jobs set due_at = clock_timestamp() where state = 'running'`)
  await until('it is taken over', async () => {
    await jobs.claim('nothing else')
    return (await jobs.find(id))?.failures === 2
  })
  const [third] = await jobs.claim('a', { label: 'web-3' })
  // To give back is no failure.
  await third?.giveBack()
  const [fourth] = await jobs.claim('a', { label: 'web-4' })
  expect(await fourth?.fail('plain')).toBe('dead')
  const dead = await jobs.find(id)
  expect(dead).toMatchObject({ state: 'dead', error: 'plain', worker: 'web-4', attempt: 4 })
  expect(dead?.failedAttempts).toEqual([
    {
      attempt: 1,
      worker: 'web-1',
      startedAt: expect.any(Date),
      endedAt: expect.any(Date),
      error: expect.stringMatching(/^TypeError: no such address\ufffd\n +at .*list\.test/),
    },
    expect.objectContaining({ attempt: 2, worker: 'web-2', error: expect.stringContaining('not heard of') }),
    expect.objectContaining({ attempt: 4, worker: 'web-4', error: 'plain' }),
  ])
  // Its attempts are still there when it has been retried, and when it is completed at last.
  await jobs.retry(id)
  const [last] = await jobs.claim('a')
  expect((await jobs.find(id))?.failedAttempts).toHaveLength(3)
  await last?.complete()
  expect(await jobs.find(id)).toMatchObject({ state: 'completed', failedAttempts: dead?.failedAttempts })
})

test('the latest 100 failed attempts are kept', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a', null, { backoff: 0, maxAttempts: 1000 })) ?? ''
  for (let attempt = 1; attempt <= 103; attempt += 1) {
    const [job] = await jobs.claim('a')
    await job?.fail(`error ${attempt}`)
  }
  const { failedAttempts = [] } = (await jobs.find(id)) ?? {}
  expect(failedAttempts.map(({ error }) => error)).toEqual(
    Array.from({ length: 100 }, (_, n) => `error ${n + 4}`),
  )
})

test('counts over time tell how many jobs were enqueued and ended in each step', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [, , third = ''] = await jobs.enqueueAll([
    { name: 'a' },
    { name: 'a' },
    { name: 'a' },
    { name: 'b' },
    { name: 'a' },
  ])
  const [one, two] = await jobs.claim('a', { limit: 2 })
  await one?.complete()
  await two?.fail('x', { retry: false })
  await jobs.cancel(third ?? '', { reason: 'x' })
  await scene.sql(`update $schema.jobs set enqueued_at = enqueued_at - interval '2 h' where name = 'b'`)
  await scene.sql(`update $schema.ended_jobs set ended_at = ended_at - interval '1 h' where state = 'dead'`)
  const counts = await jobs.countOverTime({ span: '4h', step: '1h' })
  expect(counts).toHaveLength(4)
  const [oldest, ...later] = counts
  for (const [n, { from }] of later.entries())
    expect(from.getTime() - (oldest?.from.getTime() ?? 0)).toBe((n + 1) * 3_600_000)
  // The hour may have ended between two of the statements above.
  const sums = (['enqueued', 'completed', 'dead', 'cancelled', 'superseded'] as const).map((event) =>
    counts.reduce((sum, step) => sum + step[event], 0),
  )
  expect(sums).toEqual([5, 1, 1, 1, 0])
  const before = counts.slice(0, 3)
  expect(before.some(({ enqueued }) => enqueued === 1)).toBe(true)
  expect(before.some(({ dead }) => dead === 1)).toBe(true)
  const ofOne = await jobs.countOverTime({ span: '4h', step: '1h', name: 'b' })
  expect(ofOne.map(({ enqueued }) => enqueued).sort()).toEqual([0, 0, 0, 1])
  expect(await jobs.countOverTime()).toHaveLength(60)
})

test('a list reads few rows by the plan that PostgreSQL keeps for it, among 100,000 others', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  await scene.sql(`
    insert into $schema.ended_jobs (id, name, state, priority, payload, attempt, failures, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, ended_at)
    select nextval('$schema.job_ids'), 'a', case when n = 1 then 'dead' else 'completed' end, 0, '1', 1, 0, 10, 1000, 1000, now(), now()
    from generate_series(1, 50000) n`)
  await scene.sql(`
    insert into $schema.jobs (id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at)
    select nextval('$schema.job_ids'), 'a', 'delayed', 0, '1', 10, 1000, 1000, now(), now() + interval '1 day'
    from generate_series(1, 50000) n`)
  await scene.sql('vacuum analyze $schema.jobs')
  await scene.sql('vacuum analyze $schema.ended_jobs')
  const [{ id: first } = {}] = await scene.sql('select min(id)::text as id from $schema.ended_jobs')
  const client = await scene.connect()
  await client.query('set plan_cache_mode = force_generic_plan')
  for (const query of [
    { states: JOB_STATES, ids: [String(first)], limit: 1 },
    { states: ['dead'], limit: 100 },
    { states: JOB_STATES, limit: 100 },
  ] as const) {
    const { text, parameters } = listStatement(query, { withDetails: false })
    const types = parameters.map(() => 'text')
    await client.query(`prepare list (${types}) as ${inSchema(text, scene.schema)}`)
    const values = parameters.map((parameter) => `'${parameter}'`)
    const { rows } = await client.query(`explain (analyze, buffers, format json) execute list (${values})`)
    const [{ Plan: plan }] = rows[0]['QUERY PLAN']
    expect(plan['Actual Rows']).toBeGreaterThanOrEqual(1)
    expect(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']).toBeLessThan(50)
    await client.query('deallocate list')
  }
})
