import { afterAll, expect, test } from 'vitest'
import { InvalidArgumentError } from '../../src/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene } from './scene.ts'

afterAll(closeSharedServer)

test('counts what waits by name, and the age of the oldest without its delay', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'mail' },
    { name: 'mail', priority: 5 },
    { name: 'mail', delay: '1h' },
    { name: 'sms', priority: -3 },
    { name: 'grouped', group: 'g' },
    { name: 'grouped', group: 'g' },
    { name: 'bad', maxAttempts: 1 },
  ])
  const [bad] = await jobs.claim('bad')
  await bad?.fail('no')
  const [first] = await jobs.claim('grouped', { limit: 2 })
  expect(first).toBeDefined()
  await scene.sql(`update $schema.jobs set ready_at = ready_at - interval '90 s' where priority = 5`)
  await scene.sql(`update $schema.jobs set ready_at = ready_at - interval '7 s' where state = 'blocked'`)
  const backlog = await jobs.backlog()
  expect(backlog.map(({ name, state, count }) => `${name} ${state} ${count}`)).toEqual([
    'bad dead 1',
    'grouped blocked 1',
    'mail delayed 1',
    'mail ready 2',
    'sms ready 1',
  ])
  const ages = Object.fromEntries(backlog.map(({ name, state, oldestMs }) => [`${name} ${state}`, oldestMs]))
  expect(ages).toMatchObject({ 'bad dead': null, 'mail delayed': null })
  expect(ages['mail ready']).toBeGreaterThanOrEqual(90_000)
  expect(ages['mail ready']).toBeLessThan(120_000)
  expect(ages['grouped blocked']).toBeGreaterThanOrEqual(7000)
  expect(ages['sms ready']).toBeLessThan(30_000)
})

test('counts jobs as ready that are due or whose worker is gone, although no worker lives to notice', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('late', 1, { delay: 50 })
  await jobs.enqueue('left')
  await jobs.claim('left')
  await scene.sql(`update $schema.jobs set due_at = clock_timestamp() where state = 'running'`)
  await until(
    'both are due',
    async () => (await jobs.backlog()).filter(({ state }) => state === 'ready').length === 2,
  )
  await scene.sql(
    `update $schema.jobs set ready_at = ready_at - interval '1 h', due_at = due_at - interval '1 h'`,
  )
  for (const { oldestMs } of await jobs.backlog()) expect(oldestMs).toBeGreaterThanOrEqual(3_600_000)
})

test('a job that failed, or was given back, waits anew', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('mail')
  const back = `update $schema.jobs set ready_at = ready_at - interval '1 h'`
  await scene.sql(back)
  const [first] = await jobs.claim('mail')
  expect(first?.waitedMs).toBeGreaterThanOrEqual(3_600_000)
  await first?.fail('once', { retryIn: 0 })
  const [second] = await jobs.claim('mail')
  expect(second?.waitedMs).toBeLessThan(60_000)
  await scene.sql(back)
  await second?.giveBack()
  expect((await jobs.backlog())[0]?.oldestMs).toBeLessThan(60_000)
})

test('says where it has stopped counting', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 30 }, () => ({ name: 'mail' })))
  expect(await jobs.backlog({ most: 10 })).toMatchObject([{ count: 10, isMore: true }])
  expect(await jobs.backlog({ most: 31 })).toMatchObject([{ count: 30, isMore: false }])
  await expect(async () => jobs.backlog({ most: 0 })).rejects.toThrow(InvalidArgumentError)
})

test('reads no more of a table of many delayed, waiting and dead jobs than it counts', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await fill(scene, 60_000)
  const backlog = await jobs.backlog({ most: 500 })
  expect(backlog.map(({ name, state, count }) => `${name} ${state} ${count}`)).toEqual([
    'a dead 500',
    'a delayed 500',
    'a ready 500',
    'b ready 500',
  ])
  // A page for each row at most. All of them are 60,000.
  const pages = await pagesRead(scene, 500)
  expect(pages).toBeGreaterThan(500)
  expect(pages).toBeLessThan(5000)
})

/** A third of the jobs is ready, a third delayed, and a third dead. */
async function fill(scene: JobsScene, count: number): Promise<void> {
  const columns = 'id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at'
  const values = "0, 'null', 10, 1000, 1000, clock_timestamp()"
  await scene.sql(`
    insert into $schema.jobs (${columns})
    select n, case n % 2 when 0 then 'a' else 'b' end, 'ready', ${values} from generate_series(1, ${count / 3}) n;
    insert into $schema.jobs (${columns}, due_at)
    select n, 'a', 'delayed', ${values}, clock_timestamp() + interval '1 day'
    from generate_series(${count / 3 + 1}, ${(count / 3) * 2}) n;
    insert into $schema.ended_jobs (${columns}, attempt, failures, ended_at)
    select n, 'a', 'dead', ${values}, 1, 1, clock_timestamp() from generate_series(${(count / 3) * 2 + 1}, ${count}) n`)
}

/** The pages that the statement reads, with those of the statements in its function. */
async function pagesRead(scene: JobsScene, most: number): Promise<number> {
  const client = await scene.connect()
  const text = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_backlog(${most})`
  const { rows } = await client.query(text)
  const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
  return Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks'])
}
