import type { PoolClient } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** The pages that a claim reads, with those of the statements in its function. The catalog is in the caches of the connection. */
async function pagesOfClaim(
  scene: JobsScene,
  client: PoolClient,
  name = 'a',
  before = 'select',
): Promise<number> {
  const claim = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_claim('{${name}}', 8, 100, 'w', 3600000, null, null)`
  await client.query(`vacuum analyze ${scene.schema}.jobs`)
  const seen: number[] = []
  for (let round = 0; round < 4; round += 1) {
    await client.query('begin')
    await client.query(before)
    const { rows } = await client.query(claim)
    await client.query('rollback')
    const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
    seen.push(Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks']))
  }
  return Math.min(...seen)
}

function delayed(scene: JobsScene, jobs: number, due: string): Promise<unknown> {
  return scene.sql(`
    insert into $schema.jobs (
      id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at
    )
    select nextval('$schema.job_ids'), 'a', 'delayed', 9, '1', 10, 1000, 1000, now(), ${due} + n * interval '1 ms'
    from generate_series(1, ${jobs}) n`)
}

test('100,000 jobs of one call, 100,000 delayed and 20,000 pending ones cost a claim no more pages', {
  timeout: 180_000,
}, async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await jobs.enqueueAll(Array.from({ length: 1000 }, () => ({ name: 'a' })))
  const alone = await pagesOfClaim(scene, client)
  expect(alone).toBeGreaterThan(100)
  await jobs.enqueueAll(Array.from({ length: 100_000 }, (_, n) => ({ name: n % 2 === 0 ? 'a' : 'b' })))
  await delayed(scene, 100_000, "now() + interval '1 hour'")
  const child = (await jobs.enqueue('child')) ?? ''
  await scene.sql(`
    insert into $schema.jobs (
      id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, children, if_child_fails
    )
    select nextval('$schema.job_ids'), 'a', 'pending', 9, '1', 10, 1000, 1000, now(), '{${child}}', 'cancel'
    from generate_series(1, 20000)`)
  // The trees of the indexes have more levels: a page more for many of the look-ups.
  expect(await pagesOfClaim(scene, client)).toBeLessThan(1.5 * alone)
})

test('1,000,000 delayed jobs cost a claim no more pages', { timeout: 180_000 }, async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await jobs.enqueueAll(Array.from({ length: 1000 }, () => ({ name: 'a' })))
  const alone = await pagesOfClaim(scene, client)
  await delayed(scene, 1_000_000, "now() + interval '1 hour'")
  // The trees of the indexes have more levels: a page more for many of the look-ups.
  expect(await pagesOfClaim(scene, client)).toBeLessThan(1.5 * alone)
})

test('100,000 delayed jobs that are due at once cost a claim no more pages than 2,000', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  const client = await scene.connect()
  await delayed(scene, 2000, "now() - interval '1 hour'")
  const few = await pagesOfClaim(scene, client)
  await delayed(scene, 98_000, "now() - interval '1 hour'")
  expect(await pagesOfClaim(scene, client)).toBeLessThan(1.5 * few)
})

test('10,000 running jobs cost the end of an attempt no more pages than 100', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await jobs.enqueueAll(Array.from({ length: 10_100 }, () => ({ name: 'a' })))
  // As mostly, the statistics know of no running jobs.
  await client.query(`vacuum analyze ${scene.schema}.jobs`)
  const run = (count: number) =>
    scene.sql(`select $schema.jobs_claim('{a}', ${count}, 0, 'w', 3600000, null, null)`)
  const pagesOfEnds = async () => {
    const settle = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_settle('{}', '{}', null, '{}', (
      select json_agg(json_build_object('id', id, 'attempt', attempt, 'reason', reason, 'retry', true, 'retry_in_ms', 60000))
      from (select * from ${scene.schema}.jobs where state = 'running' order by id desc limit 20) j
      cross join (select unnest(array[null, 'broken']) as reason) r
    ), true, false)`
    const seen: number[] = []
    for (let round = 0; round < 3; round += 1) {
      await client.query('begin')
      const { rows } = await client.query(settle)
      await client.query('rollback')
      const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
      seen.push(Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks']))
    }
    return Math.min(...seen)
  }
  await run(100)
  const few = await pagesOfEnds()
  await run(10_000)
  expect(await pagesOfEnds()).toBeLessThan(3 * few)
})

/** Completed and dead jobs by turns, some of whose keys stay taken. */
async function ended(scene: JobsScene, jobs: number, at: string): Promise<void> {
  await scene.sql(`
    insert into $schema.ended_jobs (
      id, name, state, priority, payload, unique_key, key_until, attempt, failures, max_attempts, backoff_ms, max_backoff_ms, enqueued_at,
      ended_at
    )
    select nextval('$schema.job_ids'), 'a', case n % 2 when 0 then 'completed' else 'dead' end, 9, '1', 'k' || n,
      case n % 3 when 0 then now() + interval '1 hour' end, 1, 0, 10, 1000, 1000, now(), ${at}
    from generate_series(1, ${jobs}) n`)
}

async function tidied(scene: JobsScene): Promise<unknown> {
  const [row] = await scene.sql('select $schema.jobs_tidy(3600000, 3600000) as again')
  return row?.['again']
}

/** Delayed jobs of 500 groups, each of which is the child of a job of its own. */
async function delayedChildren(scene: JobsScene, jobs: number, due: string): Promise<void> {
  await scene.sql(`
    with child as (
      insert into $schema.jobs (
        id, name, state, priority, payload, group_key, group_limit, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at
      )
      select nextval('$schema.job_ids'), 'a', 'delayed', 9, '1', 'g' || n % 500, 2, 10, 1000, 1000, now(),
        ${due} + n * interval '1 ms'
      from generate_series(1, ${jobs}) n returning id, group_key
    ), parent as (
      insert into $schema.jobs (
        id, name, state, priority, payload, group_key, group_limit, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, children,
        if_child_fails
      )
      select nextval('$schema.job_ids'), 'a', 'pending', 9, '1', group_key, 2, 10, 1000, 1000, now(), array[id], 'cancel'
      from child returning id, children
    )
    insert into $schema.job_children (child, parent, done) select children[1], id, false from parent`)
}

test('30,000 delayed jobs of groups, and as many jobs that wait for them, cost a claim no more pages', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await jobs.enqueueAll(
    Array.from({ length: 1000 }, (_, n) => ({ name: 'a', group: `g${n % 500}`, groupLimit: 2 })),
  )
  const child = (await jobs.enqueue('child')) ?? ''
  await jobs.enqueue('parent', null, { children: [child] })
  const childEnds = `select ${scene.schema}.jobs_end(j, 'completed', null) from ${scene.schema}.jobs j where id = ${child}`
  const alone = await pagesOfClaim(scene, client)
  const telling = await pagesOfClaim(scene, client, 'parent', childEnds)
  await delayedChildren(scene, 30_000, "now() + interval '1 hour'")
  await client.query(`vacuum analyze ${scene.schema}.job_children`)
  // The trees of the indexes have more levels: a page more for many of the look-ups.
  expect(await pagesOfClaim(scene, client)).toBeLessThan(1.5 * alone)
  expect(await pagesOfClaim(scene, client, 'parent', childEnds)).toBeLessThan(1.5 * telling)
})

test('30,000 delayed jobs of groups that are due at once cost a claim no more pages than 2,000', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  const client = await scene.connect()
  await delayedChildren(scene, 2000, "now() - interval '1 hour'")
  const few = await pagesOfClaim(scene, client)
  await delayedChildren(scene, 28_000, "now() - interval '1 hour'")
  expect(await pagesOfClaim(scene, client)).toBeLessThan(1.5 * few)
})

test('a clean-up reads no page of a table that has nothing to clean up, and PostgreSQL does not compile its plans', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 50_000 }, () => ({ name: 'a' })))
  await scene.sql('vacuum analyze $schema.jobs')
  // Jobs of every age have been on the pages of those that are there now.
  await ended(scene, 20_000, "now() - interval '3 hours'")
  await scene.sql('delete from $schema.ended_jobs where id % 10 > 0')
  await scene.sql('vacuum analyze $schema.ended_jobs')
  await ended(scene, 20_000, "now() - interval '1 minute'")
  while (await tidied(scene));
  await scene.sql('vacuum analyze $schema.ended_jobs')
  const client = await scene.connect()
  await client.query('set jit = on; set jit_above_cost = 100000')
  const call = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_tidy(3600000, 3600000)`
  const pages = async () => {
    const [{ Plan: plan }] = (await client.query(call)).rows[0]['QUERY PLAN']
    return plan['Shared Hit Blocks'] + plan['Shared Read Blocks']
  }
  await pages()
  expect(await pages()).toBeLessThan(100)
  const [{ config } = {}] = await scene.sql(
    `select proconfig as config from pg_proc where oid = '$schema.jobs_tidy(bigint, bigint)'::regprocedure`,
  )
  expect(config).toContain('jit=off')
})
