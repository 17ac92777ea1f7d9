import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createJobs, type JobFailure, type JobView, type RunningJob } from '../../src/jobs/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { CLIENT_KINDS, closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

async function list(jobs: AsyncIterable<JobView>): Promise<JobView[]> {
  const all: JobView[] = []
  for await (const job of jobs) all.push(job)
  return all
}

describe.each(CLIENT_KINDS)('with %s', (kind) => {
  test('a job comes to its handler as it was enqueued, and is completed when that returns', async () => {
    await using scene = await openScene()
    const jobs = scene.open({}, { kind })
    await jobs.migrate()
    const payload = { text: 'zero \u0000, half \ud800, "quoted" \\', list: [1, null, { deep: true }] }
    const id = await jobs.enqueue('greet', payload, { priority: 3, group: 'g', key: 'k' })
    const seen: unknown[] = []
    const worker = jobs.work({
      greet: ({ signal, complete, fail, giveBack, ...facts }) => {
        seen.push(facts)
      },
    })
    const job = await until('it is completed', async () => {
      const found = await jobs.find(id ?? '')
      return found?.state === 'completed' && found
    })
    expect(seen).toEqual([
      {
        id,
        name: 'greet',
        payload,
        attempt: 1,
        failures: 0,
        maxAttempts: 10,
        priority: 3,
        key: 'k',
        group: 'g',
        enqueuedAt: job.enqueuedAt,
        waitedMs: expect.any(Number),
        trace: null,
      },
    ])
    expect(job).toMatchObject({ state: 'completed', attempt: 1, payload, error: null })
    expect(job.worker).toMatch(new RegExp(`^worker:${process.pid}:`))
    await worker.stop()
    expect(await scene.sql('select * from $schema.jobs')).toEqual([])
  })

  test('a job that throws is tried again after its backoff, up to its last attempt, and then it is dead', async () => {
    await using scene = await openScene()
    const jobs = scene.open({}, { kind })
    await jobs.migrate()
    const id = (await jobs.enqueue('fragile', 1, { maxAttempts: 3, backoff: 40, maxBackoff: 60 })) ?? ''
    const attempts: number[] = []
    const failures: JobFailure[] = []
    jobs.work(
      {
        fragile: ({ attempt }) => {
          attempts.push(attempt)
          throw new Error(`attempt ${attempt}`)
        },
      },
      { onFailure: (failure) => failures.push(failure) },
    )
    await until('it is dead', () => failures.length === 3)
    expect(attempts).toEqual([1, 2, 3])
    expect(failures.map(({ outcome }) => outcome)).toEqual(['delayed', 'delayed', 'dead'])
    const job = await jobs.find(id)
    expect(job).toMatchObject({ state: 'dead', attempt: 3, failures: 3 })
    expect(job?.error).toContain('attempt 3')
    // The fence goes on rising, and the job has all its attempts again.
    expect(await jobs.retry(id)).toEqual([id])
    await until('it is dead again', () => failures.length === 6)
    expect(attempts).toEqual([1, 2, 3, 4, 5, 6])
    expect(await jobs.retry(['999999999', id])).toEqual([id])
    await until('it is dead once more', () => failures.length === 9)
    expect(await jobs.remove(id)).toEqual([id])
    expect(await jobs.find(id)).toBeNull()
  })

  test('inside a transaction a job is there when that commits, and never when it is rolled back', async () => {
    await using scene = await openScene()
    const jobs = scene.open({}, { kind })
    await jobs.migrate()
    const client = await scene.connect()
    await client.query('begin')
    await jobs.enqueue('later', 1, { transaction: client })
    expect(await jobs.count()).toEqual([])
    await client.query('rollback')
    await client.query('begin')
    const [id] = await jobs.enqueueAll([{ name: 'later', payload: 2 }], { transaction: client })
    expect(await jobs.find(id ?? '')).toBeNull()
    await client.query('commit')
    expect(await jobs.find(id ?? '')).toMatchObject({ id, state: 'ready', payload: 2 })
  })
})

test('the wait for the next attempt doubles up to its longest, less up to a half at random', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const backoff = { backoff: '10s', maxBackoff: '30s' }
  await jobs.enqueueAll(Array.from({ length: 40 }, () => ({ name: 'a', ...backoff })))
  const clock = async () => (await scene.sql('select clock_timestamp()::text as now'))[0]?.['now']
  for (const mostMs of [10_000, 20_000, 30_000, 30_000]) {
    const claimed = await jobs.claim('a', { limit: 40 })
    const before = await clock()
    await Promise.all(claimed.map((job) => job.fail('again')))
    const after = await clock()
    const [waits] = await scene.sql(`
      select count(*)::int as jobs,
        extract(epoch from min(due_at) - '${after}'::timestamptz)::float8 * 1000 as least,
        extract(epoch from max(due_at) - '${before}'::timestamptz)::float8 * 1000 as most,
        extract(epoch from max(due_at) - min(due_at))::float8 * 1000 as spread
      from $schema.jobs where state = 'delayed'`)
    const tookMs = Date.parse(String(after)) - Date.parse(String(before))
    expect(waits?.['jobs']).toBe(40)
    expect(waits?.['least']).toBeGreaterThan(mostMs / 2 - tookMs - 1)
    expect(waits?.['most']).toBeLessThan(mostMs + tookMs + 1)
    expect(waits?.['spread']).toBeGreaterThan(mostMs / 5)
    await scene.sql('update $schema.jobs set due_at = clock_timestamp()')
  }
})

test('the most urgent starts first, then the oldest', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'a', payload: 'low', priority: -1 },
    { name: 'a', payload: 'first' },
    { name: 'b', payload: 'urgent', priority: 9 },
    { name: 'a', payload: 'second' },
    { name: 'other', payload: 'nobody asks', priority: 100 },
  ])
  const claimed = await jobs.claim(['a', 'b'], { limit: 10 })
  expect(claimed.map(({ payload }) => payload)).toEqual(['urgent', 'first', 'second', 'low'])
  await Promise.all(claimed.map((job) => job.complete()))
  expect(await list(jobs.inspect({ state: 'completed' }))).toHaveLength(4)
})

test('a delayed job starts when it is due, by the database, without being polled for', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const started: number[] = []
  jobs.work({ a: ({ payload }) => started.push(payload as number) }, { pollInterval: '10m' })
  await jobs.enqueue('a', 0)
  await until('the worker works', () => started.length === 1)
  const enqueuedAt = performance.now()
  const ids = await jobs.enqueueAll([
    { name: 'a', payload: 2, delay: 4000 },
    { name: 'a', payload: 1, runAt: new Date(Date.now() + 300) },
    { name: 'a', payload: 3, delay: '1h' },
  ])
  await until('both have started', () => started.length === 3)
  expect(performance.now() - enqueuedAt).toBeGreaterThan(3990)
  expect(started).toEqual([0, 1, 2])
  await until('they are completed', async () => (await jobs.find(ids[0] ?? ''))?.state === 'completed')
  expect((await jobs.find(ids[2] ?? ''))?.state).toBe('delayed')
})

test('a key keeps a second job out while the first one waits, also for its next attempt, and not while it runs', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const enqueue = () => jobs.enqueue('sync', null, { key: 'k', backoff: '1h' })
  const first = await enqueue()
  expect(await enqueue()).toBeNull()
  expect(await jobs.enqueue('other', null, { key: 'k' })).not.toBeNull()
  const [running] = await jobs.claim('sync')
  expect(running?.id).toBe(first)
  const second = await enqueue()
  expect(second).not.toBeNull()
  expect(await enqueue()).toBeNull()
  // Two jobs of a key cannot wait. The newer one has not read anything yet, so it does the work of both.
  expect(await running?.fail(new Error('first'))).toBe('superseded')
  expect((await jobs.find(first ?? ''))?.state).toBe('superseded')
  const [next] = await jobs.claim('sync')
  expect(next?.id).toBe(second)
  expect(await next?.fail('second')).toBe('delayed')
  expect(await enqueue()).toBeNull()
  // The first job cannot come back either.
  expect(await jobs.retry(first ?? '')).toEqual([])
})

test('many enqueue the same key at once, and one of them does', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxConnections: 8 })
  await jobs.migrate()
  const ids = await Promise.all(Array.from({ length: 40 }, () => jobs.enqueue('a', 1, { key: 'k' })))
  expect(ids.filter((id) => id !== null)).toHaveLength(1)
})

test('a job that is cancelled while it runs cannot be completed, and its handler is told', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const failures: JobFailure[] = []
  let aborted: unknown
  jobs.work(
    {
      a: ({ signal }) =>
        new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => {
            aborted = signal.reason
            resolve()
          })
        }),
    },
    { ttl: '5s', onFailure: (failure) => failures.push(failure) },
  )
  await until('it runs', async () => (await jobs.find(id))?.state === 'running')
  expect(await jobs.cancel(id, { reason: 'no longer wanted' })).toEqual([id])
  await until('the worker knows', () => failures.length === 1)
  expect(aborted).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  expect(failures).toMatchObject([{ outcome: 'lost', error: aborted }])
  expect(await jobs.find(id)).toMatchObject({ state: 'cancelled', error: 'no longer wanted' })
  expect(await jobs.cancel(id, { reason: 'again' })).toEqual([])
})

test('a handler hears of a cancellation long before the next renewal, and the others of its worker go on', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll([{ name: 'a', group: 'g' }, { name: 'a' }])) as string[]
  const aborted: string[] = []
  const worker = jobs.work(
    {
      a: ({ id, signal }) =>
        new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => {
            aborted.push(id)
            resolve()
          })
        }),
    },
    { ttl: '1h', onFailure: () => {} },
  )
  await until('both run', async () => {
    const [count] = await jobs.count()
    return worker.jobCount === 2 && count?.state === 'running' && count.count === 2
  })
  // A message may come before the subscription of the worker.
  await until('it listens', async () => {
    const rows = await scene.sql(
      `select from pg_stat_activity where query ilike 'listen "holdfast_jobs"%' and application_name = 'holdfast jobs'`,
    )
    return rows.length > 0
  })
  await jobs.cancel(ids[0] ?? '', { reason: 'no longer wanted' })
  await until('its handler knows', () => aborted.length > 0)
  expect(aborted).toEqual([ids[0]])
  expect(await jobs.find(ids[1] ?? '')).toMatchObject({ state: 'running' })
})

test('a job is dead at once when its handler says so, and comes back when its handler says', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'a' }])
  const [first, second, third] = await jobs.claim('a', { limit: 3 })
  expect(await first?.fail('hopeless', { retry: false })).toBe('dead')
  expect(await second?.fail('busy', { retryIn: '1h' })).toBe('delayed')
  await third?.giveBack()
  expect(await list(jobs.inspect())).toMatchObject([
    { state: 'ready', failures: 0, error: null, attempt: 1 },
    { state: 'delayed', failures: 1, error: 'busy' },
    { state: 'dead', failures: 1, error: 'hopeless' },
  ])
  const lost = { code: 'lease-lost', reason: 'evicted', key: first?.id }
  await expect(first?.complete()).rejects.toMatchObject(lost)
})

test('jobs that are over are cleaned up after their time, and completed ones are not kept at all if the user wants that', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ keepCompleted: 50, keepEnded: '1h' })
  await jobs.migrate()
  const unkept = scene.open({ keepCompleted: 0 })
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'a' }])
  const [first, second] = await jobs.claim('a', { limit: 2 })
  await first?.complete()
  await second?.fail('x', { retry: false })
  const [third] = await unkept.claim('a')
  await third?.complete()
  expect(await list(jobs.inspect())).toMatchObject([{ state: 'dead' }, { state: 'completed' }])
  await until('the completed one is gone', async () => {
    await jobs.cleanUp()
    return (await jobs.find(first?.id ?? '')) === null
  })
  expect(await list(jobs.inspect())).toMatchObject([{ id: second?.id, state: 'dead' }])
})

test('the result that a handler gave its job is told when the handler throws afterwards', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'dead' }, { name: 'done' }])
  const outcomes: string[] = []
  const worker = jobs.work(
    {
      dead: async (job) => {
        await job.fail('no use', { retry: false })
        throw new Error('afterwards')
      },
      done: async (job) => {
        await job.complete()
        throw new Error('afterwards')
      },
    },
    { onFailure: ({ job, outcome }) => outcomes.push(`${job.name} ${outcome}`) },
  )
  await until('both are told', () => outcomes.length === 2)
  await worker.stop()
  expect(outcomes.sort()).toEqual(['dead dead', 'done completed'])
})

test('a handler that settles its job and goes on keeps its place', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 6 }, () => ({ name: 'a' })))
  let begun = 0
  let running = 0
  let most = 0
  const handlers = {
    a: async (job: RunningJob) => {
      begun += 1
      running += 1
      most = Math.max(most, running)
      await job.complete()
      // The jobs of a claim that went along with the settlement begin in the same turn.
      await jobs.count()
      running -= 1
    },
  }
  jobs.work(handlers, { concurrency: 1 })
  await until('all were begun and have ended', () => begun === 6 && running === 0)
  expect(most).toBe(1)
})

test('functions of the user that throw or reject do not end a worker', async () => {
  const server = await startPostgres()
  const pool = new pg.Pool({ connectionString: server.url })
  pool.on('error', () => {})
  const jobs = createJobs(pool)
  const warnings: string[] = []
  const listen = (warning: Error): void => {
    warnings.push(warning.message)
  }
  process.on('warning', listen)
  try {
    await jobs.migrate()
    let calls = 0
    let done = 0
    const worker = jobs.work(
      {
        a: () => {
          done += 1
          if (done === 2) throw new Error('fails')
        },
      },
      {
        pollInterval: 50,
        onFailure: async () => {
          throw new Error('onFailure')
        },
        onError: () => {
          calls += 1
          throw new Error('onError')
        },
      },
    )
    await jobs.enqueue('a')
    await until('it works', () => done === 1)
    await server.kill()
    await until('it is told', () => calls > 0)
    await server.restart()
    await until('it works again', async () => {
      await jobs.enqueue('a', null, { maxAttempts: 1 }).catch(() => {})
      return done >= 3
    })
    expect(warnings).toContain('`onError` of a worker itself failed.')
    await worker.stop()
  } finally {
    process.off('warning', listen)
    await jobs.close({ grace: 0 })
    await pool.end()
    await server.close()
  }
})
