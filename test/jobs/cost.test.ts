import { afterAll, beforeAll, expect, test } from 'vitest'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('100,000 jobs of one call and 100,000 delayed ones cost a claim no more pages', {
  timeout: 180_000,
}, async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  const claim = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_claim('{a}', 8, 100, 'w', 3600000, null, null)`

  /** The pages that a claim reads, with those of the statements in its function. The catalog is in the caches of the connection. */
  async function pagesOfClaim(): Promise<number> {
    await client.query(`vacuum analyze ${scene.schema}.jobs`)
    const seen: number[] = []
    for (let round = 0; round < 4; round += 1) {
      await client.query('begin')
      const { rows } = await client.query(claim)
      await client.query('rollback')
      const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
      seen.push(Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks']))
    }
    return Math.min(...seen)
  }

  await jobs.enqueueAll(Array.from({ length: 1000 }, () => ({ name: 'a' })))
  const alone = await pagesOfClaim()
  expect(alone).toBeGreaterThan(100)
  await jobs.enqueueAll(Array.from({ length: 100_000 }, (_, n) => ({ name: n % 2 === 0 ? 'a' : 'b' })))
  await scene.sql(`
    insert into $schema.jobs (
      id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at
    )
    select nextval('$schema.job_ids'), 'a', 'delayed', 9, '1', 10, 1000, 1000, now(), now() + interval '1 hour' + n * interval '1 ms'
    from generate_series(1, 100000) n`)
  // The trees of the indexes have more levels: a page more for many of the look-ups.
  expect(await pagesOfClaim()).toBeLessThan(1.5 * alone)
})
