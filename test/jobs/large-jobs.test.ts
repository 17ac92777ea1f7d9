import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const MIB = 1_048_576

interface Claim {
  readonly bytes: number
  readonly jobs: readonly [id: string, attempt: number][]
  readonly againMs: number | null
  readonly earlierRuns: boolean
}

/** What one claim answers. `known`: the jobs that the claimant has, after a lost answer. */
async function claim(
  scene: JobsScene,
  wanted: number,
  { known, ahead = 0 }: { known?: readonly string[]; ahead?: number } = {},
): Promise<Claim> {
  const lists = known === undefined ? 'null, null' : `'{${known}}', '{${known.map(() => 1)}}'`
  const [row] = await scene.sql(
    `select $schema.jobs_claim('{large,b}', ${wanted}, ${ahead}, 'w', 3600000, ${lists}) as answer`,
  )
  const text = String(row?.['answer'])
  const { jobs, again_ms, earlier_runs } = JSON.parse(text)
  return {
    bytes: text.length,
    jobs: jobs.map((job: [string, unknown, unknown, unknown, number]) => [job[0], job[4]]),
    againMs: again_ms,
    earlierRuns: earlier_runs,
  }
}

/** `payload`: an expression of SQL. */
async function addJobs(scene: JobsScene, count: number, payload: string): Promise<void> {
  await scene.sql(`
    insert into $schema.jobs (id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at)
    select nextval('$schema.job_ids'), 'large', 'ready', 0, ${payload}, 10, 1000, 1000, now() from generate_series(1, ${count}) n`)
}

const INCOMPRESSIBLE = `(
  select to_json(string_agg(md5(n::text || part::text), '')) from generate_series(1, 32768) part
)`
const COMPRESSIBLE = `to_json(repeat('x', ${MIB}))`
/** Stored in less than 2,000 bytes. */
const TABLE = `(
  select json_agg(json_build_object('articleNumber', row, 'quantity', 1, 'warehouse', 'north', 'comment', null)) from generate_series(1, 200) row
)`

test.each([
  ['that the database compresses', COMPRESSIBLE],
  ['that it cannot compress', INCOMPRESSIBLE],
])('jobs of a mebibyte %s come four at a time, in order, and none is left out', async (_, payload) => {
  await using scene = await openScene()
  await scene.open().migrate()
  await addJobs(scene, 90, payload)
  const ids: string[] = []
  for (let round = 0; ids.length < 90 && round < 40; round += 1) {
    const { bytes, jobs, againMs } = await claim(scene, 100)
    expect(bytes).toBeLessThan(4.5 * MIB)
    expect(jobs.length).toBeGreaterThanOrEqual(Math.min(3, 90 - ids.length))
    if (ids.length + jobs.length < 90) expect(againMs).toBe(0)
    ids.push(...jobs.map(([id]) => id))
  }
  expect(ids).toEqual(ids.toSorted((one, other) => Number(one) - Number(other)))
  expect(new Set(ids).size).toBe(90)
})

test('a job that is larger than a claim is claimed alone, also in a group, and behind smaller ones', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxPayloadBytes: 8 * MIB })
  await jobs.migrate()
  const payload = 'y'.repeat(6 * MIB)
  await jobs.enqueueAll([
    { name: 'large', payload: 1 },
    { name: 'large', payload, group: 'g' },
    { name: 'large', payload },
    { name: 'large', payload: 4 },
  ])
  const claimed = [
    await claim(scene, 10),
    await claim(scene, 10),
    await claim(scene, 10),
    await claim(scene, 10),
  ]
  expect(claimed.map((each) => each.jobs.length)).toEqual([1, 1, 1, 1])
  expect((await claim(scene, 10)).jobs).toEqual([])
})

test('the jobs of a lost answer come in parts, too, each once, and none counts as a failure', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  await addJobs(scene, 10, COMPRESSIBLE)
  for (let round = 0; round < 4; round += 1) await claim(scene, 100)
  const known: string[] = []
  const parts: number[] = []
  for (let round = 0; round < 10; round += 1) {
    const { bytes, jobs, earlierRuns } = await claim(scene, 0, { known })
    expect(bytes).toBeLessThan(4.5 * MIB)
    parts.push(jobs.length)
    for (const [id, attempt] of jobs) {
      expect([known.includes(id), attempt]).toEqual([false, 1])
      known.push(id)
    }
    if (!earlierRuns) break
  }
  expect(known).toHaveLength(10)
  expect(parts.length).toBeGreaterThanOrEqual(3)
  expect(await claim(scene, 0, { known })).toMatchObject({ jobs: [], earlierRuns: false })
})

test('payloads that become small in the database are measured as they are sent', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  await addJobs(scene, 1000, TABLE)
  const [{ stored, sent } = {}] = await scene.sql(
    `select max(pg_column_size(payload)) as stored, max(octet_length(payload::text)) as sent from $schema.jobs`,
  )
  expect(stored).toBeLessThan(2000)
  expect(sent).toBeGreaterThan(10_000)
  const { bytes, jobs, againMs } = await claim(scene, 1000)
  expect(bytes).toBeLessThan(4.5 * MIB)
  expect(bytes).toBeGreaterThan(3.5 * MIB)
  expect([jobs.length < 1000, againMs]).toEqual([true, 0])
})

test('large jobs of a group that another transaction has locked hold up no job of another group, and no claim repeats at once', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await addJobs(scene, 5, COMPRESSIBLE)
  await scene.sql(`update $schema.jobs set group_key = 'held'`)
  await addJobs(scene, 10, `to_json(repeat('x', ${3 * MIB}))`)
  await scene.sql(`update $schema.jobs set group_key = 'held ' || id where group_key is null`)
  await jobs.enqueueAll(Array.from({ length: 20 }, (_, n) => ({ name: 'large', group: `free ${n}` })))
  const client = await scene.connect()
  await client.query('begin')
  await client.query(
    `select pg_advisory_xact_lock(${scene.schema}.jobs_group_lock(group_key)) from ${scene.schema}.jobs where group_key like 'held%'`,
  )
  const first = await claim(scene, 50)
  expect(first.jobs).toHaveLength(20)
  const second = await claim(scene, 50)
  expect(second.jobs).toEqual([])
  expect(second.againMs).toBeGreaterThan(0)
  // As many as it asks for, all of them refused.
  expect((await claim(scene, 5)).againMs).toBeGreaterThan(0)
  await client.query('commit')
  expect((await claim(scene, 50)).jobs).toHaveLength(1)
})

test('two large lists with the same keys in different orders, each in a transaction, do not deadlock', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const payload = 'k'.repeat(250_000)
  const list = Array.from({ length: 36 }, (_, n) => ({ name: 'large', key: `k${n}`, payload }))
  const enqueue = async (entries: typeof list) => {
    const client = await scene.connect()
    await client.query('begin')
    const ids = await jobs.enqueueAll(entries, { transaction: client })
    await client.query('commit')
    return ids.filter((id) => id !== null).length
  }
  const counts = await Promise.all([enqueue(list), enqueue(list.toReversed())])
  expect(counts.toSorted((one, other) => one - other)).toEqual([0, 36])
})

test('a worker runs many large jobs, whose results are large as well', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const payload = 'z'.repeat(MIB - 2)
  await jobs.enqueueAll(Array.from({ length: 40 }, () => ({ name: 'large', payload })))
  const errors: unknown[] = []
  const worker = jobs.work(
    { large: (job) => job.payload },
    {
      concurrency: 100,
      onError: (error) => errors.push(error),
      onFailure: (failure) => errors.push(failure),
    },
  )
  await until('all are completed', async () => {
    const counts = await jobs.count()
    return counts.length === 1 && counts[0]?.state === 'completed' && counts[0].count === 40
  })
  await worker.stop()
  expect(errors).toEqual([])
  const [row] = await scene.sql(
    `select count(*)::int as count, min(length(result::text)) as least from $schema.ended_jobs`,
  )
  expect(row).toEqual({ count: 40, least: MIB })
})
