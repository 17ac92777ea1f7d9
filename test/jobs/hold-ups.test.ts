import { Client, Pool, type PoolClient } from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { createJobs, type JobFailure, type Jobs, type WorkOptions } from '../../src/jobs/index.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** A worker with a failing job that has a key. An open transaction has enqueued a job of the same key. */
async function openKeyedScene() {
  const scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const failing = (await jobs.enqueue('keyed', null, { key: 'k', backoff: '1h' })) ?? ''
  let fail: () => void = () => {}
  const failed = new Promise<void>((resolve) => {
    fail = resolve
  })
  const failures: JobFailure[] = []
  const worker = scene.open().work(
    {
      keyed: async () => {
        await failed
        throw new Error('of the keyed one')
      },
      other: () => {},
    },
    { onFailure: (failure) => failures.push(failure), onError: () => {} },
  )
  await until('the keyed job runs', async () => (await jobs.find(failing))?.state === 'running')
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('keyed', null, { key: 'k', delay: '1h', transaction: client })
  return { scene, jobs, failing, fail, failures, worker, client }
}

test.each(['commit', 'rollback'])(
  'an open transaction that has enqueued the key of a failing job holds up no other job, and its %s decides the fate of that job',
  async (end) => {
    const { scene, jobs, failing, fail, failures, client } = await openKeyedScene()
    await using _ = scene
    fail()
    // This takes long enough for the statement that settles the keyed job to come before them.
    for (let n = 0; n < 20; n += 1) {
      const id = (await jobs.enqueue('other')) ?? ''
      await until('the other one is completed', async () => (await jobs.find(id))?.state === 'completed')
    }
    expect(failures).toEqual([])
    expect(await jobs.find(failing)).toMatchObject({ state: 'running', failures: 0 })
    await client.query(end)
    await until('the keyed one is settled', () => failures.length === 1)
    const outcome = end === 'commit' ? 'superseded' : 'delayed'
    expect(failures).toMatchObject([{ outcome, error: { message: 'of the keyed one' } }])
    expect(await jobs.find(failing)).toMatchObject({ state: outcome, failures: 1 })
  },
)

test('failing jobs whose keys an open transaction has enqueued keep no places from others', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const keyed = [1, 2, 3].map((n) => ({ name: 'keyed', key: `k${n}`, backoff: '1h' }))
  await jobs.enqueueAll(keyed)
  const client = await scene.connect()
  let enqueued: () => void = () => {}
  const isEnqueued = new Promise<void>((resolve) => {
    enqueued = resolve
  })
  const outcomes: string[] = []
  const worker = scene.open().work(
    {
      keyed: async () => {
        await isEnqueued
        throw new Error('no')
      },
      other: () => {},
    },
    { concurrency: 3, onFailure: ({ outcome }) => outcomes.push(outcome), onError: () => {} },
  )
  await until('all places are taken', () => worker.jobCount === 3)
  await client.query('begin')
  await jobs.enqueueAll(
    keyed.map((job) => ({ ...job, delay: '1h' })),
    { transaction: client },
  )
  enqueued()
  await jobs.enqueueAll(Array.from({ length: 100 }, () => ({ name: 'other' })))
  await until('the others are through', async () => {
    const counts = await jobs.count()
    return counts.some(({ name, state, count }) => name === 'other' && state === 'completed' && count === 100)
  })
  expect(outcomes).toEqual([])
  await client.query('commit')
  await until('the keyed ones are settled', () => outcomes.length === 3)
  expect(outcomes).toEqual(['superseded', 'superseded', 'superseded'])
})

test('an overdue job whose key an open transaction has enqueued holds up no claim', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('keyed', null, { key: 'k', backoff: 0 })) ?? ''
  expect(await jobs.claim('keyed', { ttl: '3s' })).toHaveLength(1)
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('keyed', null, { key: 'k', transaction: client })
  await until('it is overdue', async () => ((await jobs.find(id))?.dueAt?.getTime() ?? 0) < Date.now() - 100)
  await jobs.enqueueAll([{ name: 'other' }, { name: 'other' }])
  expect(await jobs.claim(['keyed', 'other'])).toMatchObject([{ name: 'other' }])
  expect(await jobs.claim(['keyed', 'other'])).toMatchObject([{ name: 'other' }])
  expect(await jobs.find(id)).toMatchObject({ state: 'running', failures: 0 })
  await client.query('commit')
  await until('it is superseded', async () => {
    await jobs.claim('nothing else')
    return (await jobs.find(id))?.state === 'superseded'
  })
})

/** A job whose handler has completed it in a transaction that stays open. The handler does not end. */
async function openHungScene(options: WorkOptions, group: string | undefined) {
  const scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  const failures: JobFailure[] = []
  let isHung = false
  let overdueAt: number | undefined
  const worker = scene.open().work(
    {
      hung: async ({ complete, signal }) => {
        signal.addEventListener('abort', () => {
          overdueAt = performance.now()
        })
        await client.query('begin')
        await complete({ transaction: client })
        isHung = true
        await new Promise(() => {})
      },
      endless: () => new Promise(() => {}),
      quick: () => {},
    },
    { concurrency: 5, onFailure: (failure) => failures.push(failure), onError: () => {}, ...options },
  )
  const hung = (await jobs.enqueue('hung', null, { group, backoff: '1h' })) ?? ''
  await until('its transaction is open', () => isHung)
  return { scene, jobs, client, worker, hung, failures, overdueAt: () => overdueAt }
}

test.each([
  { group: undefined, end: 'rollback', state: 'delayed' },
  { group: 'g', end: 'rollback', state: 'delayed' },
  { group: 'g', end: 'commit', state: 'completed' },
])(
  'a handler that takes too long with its transaction open (group: $group) holds up no other job, and the $end decides the fate of its own',
  async ({ group, end, state }) => {
    // Longer than a busy machine keeps the handler from its completion. A job that is overdue before that has failed.
    const { scene, jobs, client, worker, hung, failures, overdueAt } = await openHungScene(
      { maxRun: 3000 },
      group,
    )
    await using _ = scene
    let longestMs = 0
    while (performance.now() < (overdueAt() ?? performance.now()) + 2000) {
      const enqueuedAt = performance.now()
      const id = (await jobs.enqueue('quick', null, { group: 'of the quick ones' })) ?? ''
      await until('it is completed', async () => (await jobs.find(id))?.state === 'completed')
      longestMs = Math.max(longestMs, performance.now() - enqueuedAt)
    }
    // A statement that is held up ends after 10 s.
    expect(longestMs).toBeLessThan(9000)
    expect(failures).toEqual([])
    await client.query(end)
    await until('its own is settled', () => worker.jobCount === 0)
    expect(failures).toMatchObject([{ outcome: state, error: { code: 'task-failed' } }])
    expect(await jobs.find(hung)).toMatchObject({ state, failures: end === 'commit' ? 0 : 1 })
  },
)

test('a worker that stops gives the other jobs back, while a handler has its transaction open', async () => {
  const { scene, jobs, worker, hung, client } = await openHungScene({}, 'g')
  await using _ = scene
  const ids = (await jobs.enqueueAll([1, 2, 3].map(() => ({ name: 'endless' })))) as string[]
  await until('they run', async () =>
    (await jobs.count()).some(
      ({ name, state, count }) => name === 'endless' && state === 'running' && count === 3,
    ),
  )
  await worker.stop({ grace: 0 })
  for (const id of ids) expect(await jobs.find(id)).toMatchObject({ state: 'ready', failures: 0 })
  await client.query('commit')
  expect(await jobs.find(hung)).toMatchObject({ state: 'completed' })
})

test.each(['job', 'group'])(
  'a completion of a job whose %s another transaction has locked holds up no other completion',
  async (what) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const ids = (await jobs.enqueueAll([1, 2, 3].map((n) => ({ name: 'a', group: `g${n}` })))) as string[]
    const claimed = await jobs.claim('a', { limit: 3 })
    const client = await scene.connect()
    await client.query('begin')
    await client.query(
      what === 'job'
        ? `select from ${scene.schema}.jobs where id = ${ids[1]} for update`
        : `select pg_advisory_xact_lock(${scene.schema}.jobs_group_lock('g2'))`,
    )
    const [first, locked, last] = claimed.map((job) => job.complete())
    locked?.catch(() => {})
    await Promise.all([first, last])
    expect(await jobs.find(ids[1] ?? '')).toMatchObject({ state: 'running' })
    await client.query('commit')
    await until('it is completed, too', () =>
      claimed[1]?.complete().then(
        () => true,
        () => false,
      ),
    )
    expect(await jobs.count()).toMatchObject([{ state: 'completed', count: 3 }])
  },
)

test('a completion waits while a migration or a vacuum has the tables', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const [job] = await jobs.claim('a')
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`lock table ${scene.schema}.jobs in access exclusive mode`)
  const completed = job?.complete()
  const waits = (ms: number) =>
    until('it waits', async () => {
      const rows = await scene.sql(
        `select from pg_stat_activity where wait_event = 'relation' and query_start < clock_timestamp() - ${ms} * interval '1 ms'`,
      )
      return rows.length > 0
    })
  await Promise.race([waits(100), completed])
  await client.query('commit')
  await completed
  expect(await jobs.find(id)).toMatchObject({ state: 'completed' })
})

test('a claim that follows a lost answer does not wait for a job that another transaction has locked', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }])) as string[]
  await jobs.claim('a', { limit: 2, label: 'w' })
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`select from ${scene.schema}.jobs where id = ${ids[0]} for update`)
  const other = await scene.connect()
  await other.query(`set lock_timeout = '1s'`)
  const { rows } = await other.query(
    `select ${scene.schema}.jobs_claim('{a}', 0, 0, 'w', 30000, '{}', '{}')::json -> 'jobs' as jobs`,
  )
  expect(rows[0]?.jobs.map(([id]: [string]) => id)).toEqual([ids[1]])
})

test('a renewal between the commit of a completion and its answer does not make the job lost', async () => {
  await using scene = await openScene()
  const direct = scene.open()
  await direct.migrate()
  await using proxy = await startProxy({ targetPort: scene.server.port })
  const url = scene.server.url.replace(String(scene.server.port), String(proxy.port))
  const failures: JobFailure[] = []
  let told: unknown = 'not yet'
  const id = (await direct.enqueue('a')) ?? ''
  scene.open({}, { url }).work(
    {
      a: async ({ signal, complete }) => {
        // The next renewal comes within three seconds, so it has as long on a busy machine.
        proxy.delay({ replyMs: 6000 })
        const completed = complete()
        await until('its answer is on the way', async () => {
          const [row] = await scene.sql(
            `select state from pg_stat_activity where query like '%${scene.schema}%jobs_settle%' and pid <> pg_backend_pid()`,
          )
          return row?.['state'] === 'idle' && (await direct.find(id))?.state === 'completed'
        })
        // Only the answers until here are late.
        proxy.delay({})
        await completed
        const [renewal] = await scene.sql(
          `select query_start > (select ended_at from $schema.ended_jobs where id = ${id}) as later
           from pg_stat_activity where query like '%${scene.schema}%jobs_renew%' and pid <> pg_backend_pid()`,
        )
        told = [renewal?.['later'], signal.aborted]
      },
    },
    { ttl: '9s', onFailure: (failure) => failures.push(failure), onError: () => {} },
  )
  await until('it is through', () => told !== 'not yet')
  expect(told).toEqual([true, false])
  expect(failures).toEqual([])
  expect(await direct.find(id)).toMatchObject({ state: 'completed' })
})

test('a process that cleans up one schema does not keep others from cleaning up another one', async () => {
  await using one = await openScene()
  await using other = await openScene()
  for (const scene of [one, other]) {
    const jobs = scene.open({ keepCompleted: 1 })
    await jobs.migrate()
    await jobs.enqueue('a')
    const [job] = await jobs.claim('a')
    await job?.complete()
  }
  const client = await one.connect()
  await client.query('begin')
  await client.query(`select ${one.schema}.jobs_tidy(null, null)`)
  const jobs = other.open({ keepCompleted: 1 })
  await until('the other one is tidy', async () => {
    await jobs.cleanUp()
    return (await jobs.count()).length === 0
  })
  await client.query('rollback')
})

/** Two jobs of a group, of which the first runs and the second is blocked, and an open transaction that has locked the second. */
async function openBlockedScene() {
  const scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [first = '', second = ''] = (await jobs.enqueueAll(
    [1, 2].map(() => ({ name: 'grouped', group: 'g', backoff: 0 })),
  )) as string[]
  const [running] = await jobs.claim('grouped', { limit: 2, ttl: '60s' })
  expect(running?.id).toBe(first)
  await until('the second is blocked', async () => (await jobs.find(second))?.state === 'blocked')
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`select from ${scene.schema}.jobs where id = ${second} for update`)
  return { scene, jobs, first, second, running, client }
}

test('a completion whose next job another transaction has locked holds up no other completion', async () => {
  const { scene, jobs, first, second, running, client } = await openBlockedScene()
  await using _ = scene
  await jobs.enqueue('other')
  const [other] = await jobs.claim('other')
  const completed = running?.complete().then(
    () => true,
    () => false,
  )
  const startedAt = performance.now()
  await other?.complete()
  expect(performance.now() - startedAt).toBeLessThan(5000)
  expect(await jobs.find(first)).toMatchObject({ state: 'running' })
  await client.query('commit')
  if ((await completed) !== true) await running?.complete()
  await until('the next one may run', async () => (await jobs.find(second))?.state === 'ready')
})

test('an overdue job whose next job another transaction has locked holds up no claim', async () => {
  const { scene, jobs, second, client } = await openBlockedScene()
  await using _ = scene
  await becomeOverdue(scene, 'grouped')
  await jobs.enqueueAll([{ name: 'other' }, { name: 'other' }])
  const startedAt = performance.now()
  for (let n = 0; n < 2; n += 1) {
    expect(await jobs.claim(['grouped', 'other'])).toMatchObject([{ name: 'other' }])
  }
  expect(performance.now() - startedAt).toBeLessThan(5000)
  expect(await jobs.find(second)).toMatchObject({ state: 'blocked' })
  await client.query('commit')
  await until('the group goes on', async () => (await jobs.claim('grouped')).length > 0)
})

test('a cancel of a job whose next job another transaction has locked changes all other jobs', async () => {
  const { scene, jobs, first, second, client } = await openBlockedScene()
  await using _ = scene
  const other = (await jobs.enqueue('other')) ?? ''
  const startedAt = performance.now()
  await Promise.allSettled([jobs.cancel([first, other], { reason: 'not needed' })])
  expect(performance.now() - startedAt).toBeLessThan(6000)
  expect(await jobs.find(other)).toMatchObject({ state: 'cancelled' })
  expect(await jobs.find(first)).toMatchObject({ state: 'running' })
  await client.query('commit')
  await jobs.cancel([first], { reason: 'not needed' })
  expect(await jobs.find(second)).toMatchObject({ state: 'ready' })
})

test('a cancel of a ready job forgets no next job that another transaction has locked', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = (await jobs.enqueueAll([1, 2, 3].map(() => ({ name: 'grouped', group: 'g' })))) as string[]
  const [first] = await jobs.claim('grouped', { limit: 3, ttl: '60s' })
  await first?.complete()
  const states = async () => Promise.all(ids.map(async (id) => (await jobs.find(id))?.state))
  expect(await states()).toEqual(['completed', 'ready', 'blocked'])
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`select from ${scene.schema}.jobs where id = ${ids[2]} for update`)
  const cancelling = jobs.cancel([ids[1] ?? ''], { reason: 'not needed' })
  await expect(cancelling).rejects.toMatchObject({ code: 'store-unavailable' })
  expect(await states()).toEqual(['completed', 'ready', 'blocked'])
  await client.query('commit')
  await jobs.cancel([ids[1] ?? ''], { reason: 'not needed' })
  expect(await states()).toEqual(['completed', 'cancelled', 'ready'])
})

test('a completion in a transaction waits for the one that has locked the next job, which may complete another job of the group', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const grouped = { name: 'grouped', group: 'g', groupLimit: 2 }
  const ids = (await jobs.enqueueAll([grouped, grouped, grouped])) as string[]
  const [first, second] = await jobs.claim('grouped', { limit: 3, ttl: '60s' })
  expect(await jobs.find(ids[2] ?? '')).toMatchObject({ state: 'blocked' })
  const [own, other] = [await scene.connect(), await scene.connect()]
  await other.query('begin')
  await other.query(`select from ${scene.schema}.jobs where id = ${ids[2]} for update`)
  await own.query('begin')
  const completing = second?.complete({ transaction: own })
  await until('it waits', async () => {
    const [row] = await scene.sql(
      "select count(*) as waiting from pg_stat_activity where query ~ '$schema.*jobs_settle' and wait_event_type = 'Lock'",
    )
    return row?.['waiting'] === '1'
  })
  await first?.complete({ transaction: other })
  await other.query('commit')
  await completing
  await own.query('commit')
  expect(await jobs.find(ids[2] ?? '')).toMatchObject({ state: 'ready' })
})

/**
 * The running jobs of this name are overdue from now on, as if their worker had died long ago. A claim with a short ttl is
 * refused if its answer comes later than that.
 */
async function becomeOverdue(scene: JobsScene, name: string): Promise<void> {
  await scene.sql(
    `update $schema.jobs set due_at = clock_timestamp() where state = 'running' and name = '${name}'`,
  )
}

/** How an open transaction keeps overdue jobs from being taken over. */
const HOLDS = {
  'has locked': async (schema: string, _jobs: Jobs, client: PoolClient) =>
    client.query(`select from ${schema}.jobs where name = 'many' for update`),
  'has enqueued the keys of': async (_schema: string, jobs: Jobs, client: PoolClient) =>
    jobs.enqueueAll(manyJobs(), { transaction: client }),
}

function manyJobs(): { name: string; key: string; backoff: number }[] {
  return Array.from({ length: 150 }, (_, n) => ({ name: 'many', key: `k${n}`, backoff: 0 }))
}

test.each(Object.entries(HOLDS))(
  'overdue jobs that an open transaction %s, however many, keep no other from being taken over',
  async (_how, hold) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const many = manyJobs()
    await jobs.enqueueAll(many)
    expect(await jobs.claim('many', { limit: many.length })).toHaveLength(many.length)
    await jobs.enqueue('abandoned', null, { backoff: 0 })
    const [abandoned] = await jobs.claim('abandoned')
    // The many are overdue for longer.
    for (const name of ['many', 'abandoned']) await becomeOverdue(scene, name)
    const client = await scene.connect()
    await client.query('begin')
    await hold(scene.schema, jobs, client)
    const startedAt = performance.now()
    const again: string[] = []
    scene.open().work({
      abandoned: ({ id }) => {
        again.push(id)
      },
    })
    await until('it is taken over', () => again.length > 0)
    expect(again).toEqual([abandoned?.id])
    expect(performance.now() - startedAt).toBeLessThan(10_000)
    await client.query('rollback')
  },
)

test('a full queue of notifications fails no transaction that enqueues, and no other call', async () => {
  const url = await (await sharedServer()).createDatabase('full_queue')
  const superuser = new Client(url)
  await superuser.connect()
  const pool = new Pool({ connectionString: url })
  const jobs = createJobs(pool)
  onTestFinished(async () => {
    await jobs.close({ grace: 0 })
    await pool.end()
    await superuser.end()
  })
  await jobs.migrate()
  // A full queue has eight gigabytes. The replaced functions behave as a full one does.
  await superuser.query(`
    set allow_system_table_mods = on;
    alter function pg_catalog.pg_notification_queue_usage() rename to true_usage;
    alter function pg_catalog.pg_notify(text, text) rename to true_notify;
    create function pg_catalog.pg_notification_queue_usage() returns double precision
      language sql as 'select 1.0::double precision';
    create function pg_catalog.pg_notify(text, text) returns void language plpgsql as $$
    begin raise exception 'too many notifications in the NOTIFY queue' using errcode = '54000'; end $$`)
  await superuser.query('begin')
  const child = await jobs.enqueue('child', null, { transaction: superuser })
  const parent = await jobs.enqueue('parent', null, { children: [child ?? ''], transaction: superuser })
  await superuser.query('commit')
  await jobs.enqueueAll([1, 2].map(() => ({ name: 'grouped', group: 'g', backoff: 0 })))
  await jobs.enqueue('late', null, { key: 'k', delay: '1s', ifTaken: 'postpone' })
  await jobs.enqueue('late', null, { key: 'k', delay: '1s', ifTaken: 'postpone' })
  await jobs.setLimit('child', { concurrency: 2 })
  const ended = jobs.waitFor(parent ?? '', { signal: AbortSignal.timeout(30_000) })
  const [failing] = await jobs.claim('grouped')
  await failing?.fail(new Error('once'))
  const worker = jobs.work({ child: () => {}, parent: () => {}, grouped: () => {}, late: () => {} })
  expect(await ended).toMatchObject({ state: 'completed' })
  await until('all are through', async () => (await jobs.count()).every(({ state }) => state === 'completed'))
  await worker.stop()
  const cancelled = (await jobs.enqueue('child')) ?? ''
  await jobs.cancel(cancelled, { reason: 'tested' })
  expect(await jobs.retry(cancelled)).toEqual([cancelled])
})
