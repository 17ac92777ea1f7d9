import { fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { bundled } from '../servers/bundled.ts'
import { startPgBouncer } from '../servers/pgbouncer.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { CLIENT_KINDS, closeSharedServer, JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

interface Gate {
  readonly opened: Promise<void>
  open(): void
}

function gate(): Gate {
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

const many = (count: number, name: string) => Array.from({ length: count }, (_, n) => ({ name, payload: n }))

test('a worker with few places that has quick jobs asks seldom, begins them in order, and runs no more at once', async () => {
  await using server = await startPostgres({ settings: { track_functions: 'pl' } })
  await using scene = new JobsScene(server)
  await scene.open().migrate()
  // A worker that was held up again and again seems to have slow jobs, and asks more often. Then a round shows nothing.
  await until('a round has asked seldom', async () => {
    await server.sql('select pg_stat_reset()')
    await runQuickJobs(scene)
    await until('what its connections did is counted', async () => {
      const [others] = await server.sql<{ count: number }>(
        `select count(*)::int from pg_stat_activity where query ~ 'jobs_(claim|settle)' and pid <> pg_backend_pid()`,
      )
      return others?.count === 0
    })
    const rows = await server.sql<{ calls: number }>(
      `select calls::int from pg_stat_user_functions where funcname ~ '^jobs_(claim|settle)$'`,
    )
    expect(rows).toHaveLength(2)
    // With claims of eight jobs at a time it would be 375.
    return rows.every(({ calls }) => calls < 150)
  })
})

async function runQuickJobs(scene: JobsScene): Promise<void> {
  const jobs = scene.open()
  await jobs.enqueueAll(many(3000, 'a'))
  const begun: unknown[] = []
  let running = 0
  let most = 0
  const worker = jobs.work(
    {
      a: async ({ payload }) => {
        begun.push(payload)
        running += 1
        most = Math.max(most, running)
        await null
        running -= 1
      },
    },
    { concurrency: 8 },
  )
  await until('all are done', () => begun.length === 3000)
  await worker.stop()
  await jobs.close()
  expect(begun).toEqual(Array.from({ length: 3000 }, (_, n) => n))
  expect(most).toBe(8)
}

test('claims ahead wait in line, and go on after a moment if the one before them does not end', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(many(3000, 'a'))
  const before = await scene.connect()
  await before.query('begin')
  await before.query(`select ${scene.schema}.jobs_line_up('{a}')`)
  let begun = 0
  const handlers = {
    a: () => {
      begun += 1
    },
  }
  jobs.work(handlers, { concurrency: 8 })
  await until('a claim waits', async () => {
    const [waiting] = await scene.sql(
      `select count(*)::int as claims from pg_locks where locktype = 'advisory' and not granted and pid in (
        select pid from pg_stat_activity where query ~ '$schema.*jobs_claim'
      )`,
    )
    return waiting?.['claims'] === 1
  })
  await until('all are done', () => begun === 3000)
  await before.query('rollback')
})

test('whoever asks for the jobs of a lost answer sees a claim that waits in line', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(many(10, 'a'))
  const [before, late] = [await scene.connect(), await scene.connect()]
  for (const client of [before, late]) await client.query('begin')
  await before.query(`select ${scene.schema}.jobs_line_up('{a}')`)
  const claim = `select ${scene.schema}.jobs_claim('{a}', 0, 5, 'w', 30000, null, null)`
  const claimed = late.query(claim)
  await until('it waits, or has waited', async () => {
    const [row] = await scene.sql(
      "select state, wait_event from pg_stat_activity where query like '%$schema.jobs_claim%' and state <> 'idle' and pid <> pg_backend_pid()",
    )
    return row?.['wait_event'] === 'advisory' || row?.['state'] === 'idle in transaction'
  })
  const [row] = await scene.sql(`select $schema.jobs_claim('{a}', 0, 0, 'w', 30000, '{}', '{}') as answer`)
  expect(JSON.parse(String(row?.['answer']))).toMatchObject({ jobs: [], earlier_runs: true })
  await claimed
  for (const client of [before, late]) await client.query('rollback')
})

test('jobs that wait behind slow ones are given back, and an idle worker runs them', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([...many(300, 'quick'), ...many(20, 'slow')])
  const slow = gate()
  const begun: string[] = []
  const busy = jobs.work(
    {
      quick: () => {},
      slow: async ({ id }) => {
        begun.push(id)
        await slow.opened
      },
    },
    { concurrency: 2, ttl: '1h' },
  )
  await until('both places are taken', () => begun.length === 2)
  const taken: [string, number][] = []
  scene.open().work({ slow: ({ id, failures }) => taken.push([id, failures]) }, { pollInterval: '10m' })
  await until('the idle worker has run the others', () => taken.length === 18)
  await until('the busy one has nothing else', () => busy.jobCount === 2)
  expect(taken.every(([id, failures]) => !begun.includes(id) && failures === 0)).toBe(true)
  expect(begun).toHaveLength(2)
  slow.open()
  await until('all are completed', async () =>
    (await jobs.count()).every(({ state }) => state === 'completed'),
  )
})

test('a worker whose jobs take long claims none ahead', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(many(12, 'a'))
  let most = 0
  let done = 0
  jobs.work(
    {
      a: async () => {
        const [row] = await scene.sql(
          `select count(*)::int as jobs from $schema.jobs where state = 'running'`,
        )
        most = Math.max(most, Number(row?.['jobs']))
        await new Promise((resolve) => setTimeout(resolve, 1000))
        done += 1
      },
    },
    { concurrency: 2 },
  )
  await until('all are done', () => done === 12)
  // A third job may be about to begin while a claim is on its way, which takes long on a busy machine.
  expect(most).toBeLessThanOrEqual(4)
})

test('stop gives back at once the jobs that have not begun', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([...many(400, 'quick'), ...many(200, 'slow')])
  const slow = gate()
  let begun = 0
  let stopped: Promise<void> | undefined
  const worker = jobs.work(
    {
      quick: () => {},
      slow: async () => {
        begun += 1
        stopped ??= worker.stop({ grace: '1h' })
        await slow.opened
      },
    },
    { concurrency: 2, ttl: '1h' },
  )
  await until('it is stopped', () => stopped !== undefined)
  await until('only what runs is left to it', async () => {
    const counts = await jobs.count()
    const ready = counts.find(({ name, state }) => name === 'slow' && state === 'ready')?.count
    return ready === 200 - begun && worker.jobCount === begun
  })
  const [returned] = await scene.sql(
    `select count(*)::int as jobs, max(failures) as failures from $schema.jobs where state = 'ready' and attempt > 0`,
  )
  expect(returned?.['jobs']).toBeGreaterThan(0)
  expect(returned?.['failures']).toBe(0)
  expect(begun).toBeLessThanOrEqual(2)
  slow.open()
  await stopped
  expect(await jobs.claim('slow', { limit: 1000 })).toHaveLength(200 - begun)
})

test('when a process dies, jobs that it had not begun come back without a failure, and a job that kills it ends dead', async () => {
  // If the machine is busy at the wrong moment, a process dies with no job claimed ahead, and the round shows nothing.
  for (let neverBegun = 0; neverBegun === 0; ) neverBegun = await runPoison()
})

/** How many jobs were claimed by a process that died before it had begun them. */
async function runPoison(): Promise<number> {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const few = { backoff: 0, maxAttempts: 3 }
  await jobs.enqueueAll([
    ...many(300, 'quick').map((job) => ({ ...job, ...few })),
    { name: 'poison', backoff: 0, maxAttempts: 2 },
    ...many(300, 'quick').map((job) => ({ ...job, ...few })),
  ])
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-ahead-'))
  const begins = join(folder, 'begins')
  writeFileSync(begins, '')
  const program = await bundled(new URL('ahead-worker.ts', import.meta.url))
  try {
    let deaths = 0
    for (;;) {
      const child = fork(program, [scene.server.url, scene.schema, begins], { execArgv: [] })
      const died = once(child, 'exit').then(() => true)
      const isOver = await Promise.race([
        died.then(() => false),
        until(
          'no job is left',
          async () => (await scene.sql('select 1 from $schema.jobs limit 1')).length === 0,
          {
            withinMs: 60_000,
          },
        ).catch(() => true),
      ])
      child.kill('SIGKILL')
      await died
      if (isOver) break
      deaths += 1
    }
    const times = new Map<string, number>()
    for (const id of readFileSync(begins, 'utf8').trim().split('\n')) times.set(id, (times.get(id) ?? 0) + 1)
    const rows = await scene.sql('select id::text, name, state, attempt, failures from $schema.ended_jobs')
    expect(rows).toHaveLength(601)
    let neverBegun = 0
    for (const row of rows.filter(({ name }) => name === 'quick')) {
      const begun = times.get(String(row['id'])) ?? 0
      expect(row).toMatchObject({ state: 'completed' })
      // Each failure was an attempt that had begun.
      expect(Number(row['failures'])).toBeLessThan(begun)
      if (begun === 1 && Number(row['attempt']) > 1) neverBegun += 1
    }
    const [poison] = rows.filter(({ name }) => name === 'poison')
    expect(poison).toMatchObject({ state: 'dead', failures: 2 })
    // The first death of the poison does not count if the job was claimed ahead.
    expect(deaths).toBeGreaterThanOrEqual(2)
    expect(deaths).toBeLessThanOrEqual(3)
    expect(times.get(String(poison?.['id']))).toBe(deaths)
    return neverBegun
  } finally {
    rmSync(folder, { recursive: true })
  }
}

describe('a claim ahead, asked of the database', () => {
  interface Answer {
    readonly ids: string[]
    readonly more: boolean
  }

  async function openClaims() {
    const scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const statement = (places: number, ahead: number, { names = 'a', ttlMs = 3_600_000 } = {}) =>
      `select ${scene.schema}.jobs_claim('{${names}}', ${places}, ${ahead}, 'w', ${ttlMs}, null, null) as answer`
    const read = (rows: readonly Record<string, unknown>[]): Answer => {
      const { jobs, again_ms } = JSON.parse(String(rows[0]?.['answer'])) as {
        jobs: [string][]
        again_ms: unknown
      }
      return { ids: jobs.map(([id]) => id), more: again_ms === 0 }
    }
    const claim = async (...asked: Parameters<typeof statement>) => read(await scene.sql(statement(...asked)))
    return { scene, jobs, statement, read, claim }
  }

  test('a lost job counts only if it was claimed to be begun, and is not claimed ahead twice', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const ids = (await jobs.enqueueAll(many(6, 'a').map((job) => ({ ...job, backoff: '1h' })))) as string[]
    expect(await claim(1, 3, { ttlMs: 50 })).toEqual({ ids: ids.slice(0, 4), more: true })
    await until('they are taken over', async () => {
      await jobs.claim('nothing else')
      return (
        (await jobs.find(ids[3] ?? ''))?.state === 'ready' &&
        (await jobs.find(ids[0] ?? ''))?.state === 'delayed'
      )
    })
    expect(await jobs.find(ids[0] ?? '')).toMatchObject({ state: 'delayed', failures: 1 })
    for (const id of ids.slice(1, 4)) {
      const job = await jobs.find(id)
      expect(job).toMatchObject({ state: 'ready', attempt: 1, failures: 0 })
      expect(job?.error).toContain('may not have begun')
    }
    expect(await claim(0, 5)).toEqual({ ids: [], more: true })
    expect(await claim(1, 5, { ttlMs: 50 })).toEqual({ ids: [ids[1]], more: true })
    await until('it is taken over', async () => {
      await jobs.claim('nothing else')
      return (await jobs.find(ids[1] ?? ''))?.state === 'delayed'
    })
    expect(await jobs.find(ids[1] ?? '')).toMatchObject({ failures: 1 })
    expect(await claim(2, 5)).toEqual({ ids: ids.slice(2), more: false })
  })

  test('a job with a single attempt and one with a large payload are claimed only to be begun, and none passes them', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const large = randomBytes(3000).toString('hex')
    const ids = (await jobs.enqueueAll([
      { name: 'a' },
      { name: 'a', maxAttempts: 1 },
      { name: 'a' },
      { name: 'a', payload: large },
      { name: 'a' },
      { name: 'a', priority: -1 },
    ])) as string[]
    expect(await claim(0, 10)).toEqual({ ids: [ids[0]], more: true })
    expect(await claim(0, 10)).toEqual({ ids: [], more: true })
    expect(await claim(1, 10)).toEqual({ ids: [ids[1], ids[2]], more: true })
    expect(await claim(1, 10)).toEqual({ ids: [ids[3], ids[4], ids[5]], more: false })
  })

  test('beside another claim, a job with a single attempt is claimed only to be begun', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const [first = '', second, third, single = ''] = (await jobs.enqueueAll([
      { name: 'a' },
      { name: 'b' },
      { name: 'a' },
      { name: 'a', maxAttempts: 1 },
      { name: 'a' },
    ])) as string[]
    const listener = await scene.connect()
    const woken: unknown[] = []
    listener.on('notification', ({ payload }) => woken.push(payload))
    await listener.query('listen holdfast_jobs')
    // Another claim that has not committed holds a row like this. The look sees this job, and the lock passes over it.
    const client = await scene.connect()
    await client.query('begin')
    await client.query(`select from ${scene.schema}.jobs where id = ${first} for update`)
    expect(await claim(1, 2, { names: 'a,b' })).toEqual({ ids: [second, third], more: true })
    expect(await jobs.find(single)).toMatchObject({ state: 'ready', attempt: 0 })
    await until('those that sleep are told of the jobs that were locked meanwhile', () => woken.length > 0)
    expect(woken).toEqual(['a'])
    // The job would begin at once now.
    expect(await claim(1, 2)).toEqual({ ids: [single], more: true })
    await client.query('rollback')
  })

  test('a job that has begun counts again from its next renewal on', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const ids = (await jobs.enqueueAll(many(2, 'a').map((job) => ({ ...job, backoff: '1h' })))) as string[]
    expect((await claim(0, 2)).ids).toEqual(ids)
    const leases = ids.map((id, n) => ({ id, attempt: 1, begun: n === 0 }))
    await scene.sql(`select $schema.jobs_renew('${JSON.stringify(leases)}', 50)`)
    await until('they are taken over', async () => {
      await jobs.claim('nothing else')
      return (await jobs.find(ids[1] ?? ''))?.state === 'ready'
    })
    expect(await jobs.find(ids[0] ?? '')).toMatchObject({ state: 'delayed', failures: 1 })
    expect(await jobs.find(ids[1] ?? '')).toMatchObject({ state: 'ready', failures: 0 })
  })

  test('a job with a key that is claimed ahead leaves its key to the next one, as one that runs', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const first = await jobs.enqueue('a', 1, { key: 'k' })
    expect(await jobs.enqueue('a', 2, { key: 'k' })).toBeNull()
    expect((await claim(0, 1)).ids).toEqual([first])
    const second = await jobs.enqueue('a', 3, { key: 'k' })
    expect(second).not.toBeNull()
    expect(await jobs.enqueue('a', 4, { key: 'k' })).toBeNull()
    expect(await jobs.enqueue('a', 5, { key: 'k', ifTaken: 'update' })).toBe(second)
    expect(await jobs.find(first ?? '')).toMatchObject({ state: 'running', payload: 1 })
    await scene.sql(`update $schema.jobs set due_at = clock_timestamp() where state = 'running'`)
    await until('the first one is taken over', async () => {
      await jobs.claim('nothing else')
      return (await jobs.find(first ?? ''))?.state !== 'running'
    })
    // Both would wait, so the newer one stands for both.
    expect(await jobs.find(first ?? '')).toMatchObject({ state: 'superseded', failures: 0 })
    expect((await jobs.claim('a', { limit: 10 })).map(({ id, payload }) => [id, payload])).toEqual([
      [second, 5],
    ])
  })

  test('a job that is unique while running keeps its key while it is claimed ahead', async () => {
    const { scene, jobs, claim } = await openClaims()
    await using _ = scene
    const rules = { key: 'k', uniqueFor: 'running' } as const
    const id = await jobs.enqueue('a', 1, rules)
    expect((await claim(0, 1)).ids).toEqual([id])
    expect(await jobs.enqueue('a', 2, rules)).toBeNull()
    expect(await jobs.enqueue('a', 2, { ...rules, ifTaken: 'update' })).toBeNull()
    expect(await jobs.find(id ?? '')).toMatchObject({ state: 'running', payload: 1 })
  })

  test('of several names it locks only the jobs it takes, so a claim beside it gets the next ones', async () => {
    const { scene, jobs, statement, read, claim } = await openClaims()
    await using _ = scene
    const ids = (await jobs.enqueueAll(
      Array.from({ length: 24 }, (_, n) => ({ name: n % 3 === 0 ? 'b' : 'a' })),
    )) as string[]
    const client = await scene.connect()
    await client.query('begin')
    const first = read((await client.query(statement(2, 10, { names: 'a,b' }))).rows)
    expect(first).toEqual({ ids: ids.slice(0, 12), more: true })
    expect((await claim(2, 10, { names: 'a,b' })).ids).toEqual(ids.slice(12))
    await client.query('commit')
  })
})

test.each([
  ['quick', 'null, null'],
  ['thorough', "'{}', '{}'"],
])(
  'what a %s claim of several names has locked and left begins as soon as it is over',
  async (_kind, known) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const [first] = await jobs.enqueueAll([{ name: 'a' }, { name: 'b' }])
    const client = await scene.connect()
    await client.query('begin')
    const claim = `select ${scene.schema}.jobs_claim('{a,b}', 1, 0, 'w', 60000, ${known}) as answer`
    const { rows } = await client.query(claim)
    expect(JSON.parse(rows[0].answer).jobs.map(([id]: [string]) => id)).toEqual([first])
    const ran: string[] = []
    const handler = ({ name }: { name: string }) => void ran.push(name)
    scene.open().work({ a: handler, b: handler }, { pollInterval: '1h' })
    await until('the worker has found nothing', async () => {
      const claims = await scene.sql(
        "select from pg_stat_activity where state = 'idle' and query like '%$schema%jobs_claim%' and pid <> pg_backend_pid()",
      )
      return claims.length > 0
    })
    expect(ran).toEqual([])
    await client.query('commit')
    await until('it runs', () => ran.length === 1)
    expect(ran).toEqual(['b'])
  },
)

test.each(CLIENT_KINDS)('with %s, answers that are lost in the middle cost no attempt', async (kind) => {
  await using scene = await openScene()
  const direct = scene.open()
  await direct.migrate()
  await using proxy = await startProxy({ targetPort: scene.server.port })
  const url = scene.server.url.replace(String(scene.server.port), String(proxy.port))
  const ran: [string, number][] = []
  const failures: JobFailure[] = []
  const worker = scene.open({}, { kind, url }).work(
    { a: ({ id, attempt }) => ran.push([id, attempt]) },
    // The label is in every claim, also in a claim that goes together with a settlement.
    {
      concurrency: 8,
      ttl: '1h',
      label: 'lossy',
      onError: () => {},
      onFailure: (failure) => failures.push(failure),
    },
  )
  const ids: (string | null)[] = []
  for (let round = 0; round < 4; round += 1) {
    const lost = proxy.loseNextReply('lossy')
    ids.push(...(await direct.enqueueAll(many(400, 'a'))))
    await lost
    await until('all have run', () => ran.length === ids.length)
  }
  await until('they are completed', async () =>
    (await direct.count()).every(({ state }) => state === 'completed'),
  )
  await worker.stop()
  expect(new Set(ran.map(([id]) => id))).toEqual(new Set(ids))
  expect(ran.every(([, attempt]) => attempt === 1)).toBe(true)
  expect(failures).toEqual([])
})

test('in one batch some complete, some fail and some are superseded, each by itself', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(
    Array.from({ length: 600 }, (_, n) => ({
      name: 'a',
      payload: n,
      backoff: '1h',
      ...(n % 10 === 0 ? { key: `k${n}` } : {}),
    })),
  )
  const outcomes: string[] = []
  let begun = 0
  jobs.work(
    {
      a: async ({ payload, key }) => {
        begun += 1
        if (key !== null) await jobs.enqueue('a', 1, { key, delay: '1h' })
        if ((payload as number) % 5 === 0) throw new Error('no')
      },
    },
    { concurrency: 8, onFailure: ({ outcome }) => outcomes.push(outcome) },
  )
  await until('all have run', () => begun === 600 && outcomes.length === 120)
  await until('all are settled', async () => (await jobs.count()).every(({ state }) => state !== 'running'))
  expect(await jobs.count()).toMatchObject([
    { state: 'completed', count: 480 },
    { state: 'delayed', count: 120 },
    { state: 'superseded', count: 60 },
  ])
})

test('a job that waits behind a handler that blocks the event loop begins only under a lease', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const enqueueRound = () =>
    jobs.enqueueAll([...many(300, 'quick'), { name: 'blocking' }, ...many(200, 'quick')])
  await enqueueRound()
  const begun = new Map<string, number>()
  let begunTooLate = 0
  jobs.work(
    {
      quick: (job) => {
        begun.set(job.id, (begun.get(job.id) ?? 0) + 1)
        try {
          job.assertHeld()
        } catch {
          begunTooLate += 1
        }
      },
      blocking: () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4100),
    },
    // Longer than a busy machine keeps this process from a begin.
    { concurrency: 1, ttl: '4s', onFailure: () => {} },
  )
  let later: Record<string, unknown>[] = []
  // A worker that was held up just before the blocking job has claimed no job ahead, and the round shows nothing.
  for (let quick = 500; later.length === 0; quick += 500) {
    await until('all are completed', async () =>
      (await jobs.count()).some(
        ({ name, state, count }) => name === 'quick' && state === 'completed' && count === quick,
      ),
    )
    later = await scene.sql(
      `select id::text, failures from $schema.ended_jobs where name = 'quick' and attempt > 1`,
    )
    if (later.length === 0) await enqueueRound()
  }
  expect(begunTooLate).toBe(0)
  // Each failure was an attempt that had begun. Its end may have come too late for the database.
  for (const { id, failures } of later) expect(Number(failures)).toBeLessThan(begun.get(String(id)) ?? 0)
})

test('a job that waits for longer than a third of its ttl is renewed, or was given back before', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const enqueueRound = () =>
    jobs.enqueueAll([...many(300, 'quick'), { name: 'blocking' }, ...many(200, 'quick')])
  const begun = new Set<string>()
  let begunTooLate = 0
  const leases = async (ids: readonly string[]) => {
    const rows = await scene.sql(
      `select id::text, due_at from $schema.jobs where state = 'running' and id = any('{${ids}}')`,
    )
    return new Map(rows.map(({ id, due_at }) => [String(id), Number(due_at)]))
  }
  let renewed = 0
  jobs.work(
    {
      quick: (job) => {
        begun.add(job.id)
        try {
          job.assertHeld()
        } catch {
          begunTooLate += 1
        }
      },
      blocking: async () => {
        const rows = await scene.sql(
          `select id::text from $schema.jobs where name = 'quick' and state = 'running'`,
        )
        const waiting = rows.map(({ id }) => String(id)).filter((id) => !begun.has(id))
        const before = await leases(waiting)
        // All this time no timer fires.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0.4 * TTL_MS)
        await until('all are renewed, or not here any more', async () => {
          const after = await leases(waiting)
          const isOld = (id: string) => after.get(id) === before.get(id)
          renewed = after.size
          return ![...after.keys()].some(isOld)
        })
      },
    },
    { concurrency: 1, ttl: TTL_MS, onFailure: () => {} },
  )
  // On a machine that is busy at the wrong moment the jobs are given back before, and the round shows nothing.
  for (let completed = 501; renewed === 0; completed += 501) {
    await enqueueRound()
    await until('all are completed', async () => {
      const counts = await jobs.count()
      return counts.every(({ state }) => state === 'completed') && total(counts) === completed
    })
  }
  expect(begunTooLate).toBe(0)
  expect(await scene.sql('select id from $schema.ended_jobs where failures > 0')).toEqual([])

  function total(counts: readonly { readonly count: number }[]): number {
    return counts.reduce((sum, { count }) => sum + count, 0)
  }
})

/** What is left of it after the event loop was blocked is longer than a busy machine needs for a renewal. */
const TTL_MS = 12_000

test('with one connection, and behind PgBouncer, quick jobs are all run, each once', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  await using bouncer = await startPgBouncer(scene.server, { poolSize: 1 })
  for (const url of [scene.server.url, bouncer.url]) {
    const jobs = scene.open({ maxConnections: 1 }, { url })
    const ids = await jobs.enqueueAll(many(1000, 'a'))
    const ran: string[] = []
    const worker = jobs.work({ a: ({ id }) => ran.push(id) }, { concurrency: 8, pollInterval: 100 })
    await until('all have run', () => ran.length >= 1000)
    await worker.stop()
    expect(ran.sort()).toEqual([...ids].sort())
  }
})
