import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** Longer than a test: whoever finds a job has been told of it. */
const NEVER = { pollInterval: '1h' } as const

function names(name: string, count: number): { name: string; payload: number }[] {
  return Array.from({ length: count }, (_, n) => ({ name, payload: n }))
}

test('no more jobs of a name run at once than its limit allows, in many workers and claims at the same time', async () => {
  await using scene = await openScene()
  const fleet = [scene.open(), scene.open(), scene.open()]
  const [jobs = scene.open()] = fleet
  await jobs.migrate()
  await jobs.setLimit('few', { concurrency: 3 })
  await jobs.enqueueAll([...names('few', 150), ...names('many', 50)])
  let running = 0
  let most = 0
  const done: string[] = []
  const few = async ({ name }: { name: string }): Promise<void> => {
    running += 1
    most = Math.max(most, running)
    await new Promise(setImmediate)
    running -= 1
    done.push(name)
  }
  for (const one of fleet) one.work({ few, many: ({ name }) => done.push(name) }, { concurrency: 20 })
  await until('all have run', () => done.length === 200)
  expect(most).toBeLessThanOrEqual(3)
  expect(done.indexOf('many')).toBeLessThan(100)
})

test('claims at the same time share the places of a limit, and jobs that run already count', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxConnections: 10 })
  await jobs.migrate()
  await jobs.enqueueAll([...names('a', 50), ...names('b', 5)])
  const before = await jobs.claim('a', { limit: 2 })
  await jobs.setLimit('a', { concurrency: 5 })
  const claims = await Promise.all(Array.from({ length: 10 }, () => jobs.claim(['a', 'b'], { limit: 4 })))
  const claimed = claims.flat()
  expect(claimed.filter(({ name }) => name === 'a')).toHaveLength(3)
  expect(claimed.filter(({ name }) => name === 'b')).toHaveLength(5)
  await before[0]?.complete()
  await before[1]?.giveBack()
  expect(await jobs.claim('a', { limit: 9 })).toHaveLength(2)
  await jobs.setLimit('a', {})
  expect(await jobs.claim('a', { limit: 9 })).toHaveLength(9)
})

test('a place is free again when its job ends, fails or loses its worker, without a poll', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('a', { concurrency: 1 })
  await jobs.enqueueAll(names('a', 12).map((job) => ({ ...job, backoff: 1, maxAttempts: 2 })))
  const [dying] = await jobs.claim('a', { ttl: '4s' })
  expect(dying).toBeDefined()
  const seen: number[] = []
  const worker = jobs.work(
    {
      a: ({ payload, attempt }) => {
        if (payload === 3 && attempt === 1) throw new Error('once more')
        seen.push(payload as number)
      },
    },
    { ...NEVER, onFailure: () => {} },
  )
  await until('all have run', () => new Set(seen).size === 12)
  await worker.stop()
})

test('a place that comes free while a claim is under way is found, without a poll', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('a', { concurrency: 1 })
  await jobs.setLimit('b', { concurrency: 5 })
  await jobs.enqueueAll([...names('a', 2), { name: 'b' }])
  const [running] = await jobs.claim('a', { ttl: '1h' })
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select from ${scene.schema}.job_limits where name = 'b' for update`)
  const begun: string[] = []
  const worker = jobs.work(
    {
      a: () => begun.push('a'),
      // If it ended, its settlement would claim.
      b: ({ signal }) => {
        begun.push('b')
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    },
    { ...NEVER, ttl: '1h' },
  )
  await until('the claim has read the limit of a, and waits for that of b', async () => {
    const [row] = await scene.sql(
      `select count(*) from pg_locks where not granted and locktype = 'transactionid'`,
    )
    return Number(row?.['count']) === 1
  })
  await running?.complete()
  await other.query('rollback')
  await until('the other a has run', () => begun.length === 2, { withinMs: 10_000 })
  expect(begun).toEqual(['b', 'a'])
  await worker.stop({ grace: 0 })
})

test('a claim counts the places that a claim under way has taken', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('a', { concurrency: 3 })
  await jobs.enqueueAll(names('a', 10))
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select ${scene.schema}.jobs_claim('{a}', 2, 0, 'other', 3600000, null, null)`)
  const claiming = jobs.claim('a', { limit: 5 })
  await until('the claim waits for the other one', async () => {
    const [row] = await scene.sql(
      `select count(*) from pg_locks where not granted and locktype = 'transactionid'`,
    )
    return Number(row?.['count']) === 1
  })
  await other.query('commit')
  expect(await claiming).toHaveLength(1)
})

test('the jobs of a claim that was under way when a name got its limit count, too', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(names('a', 10))
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select ${scene.schema}.jobs_claim('{a}', 2, 0, 'other', 3600000, null, null)`)
  await jobs.setLimit('a', { concurrency: 3 })
  expect(await jobs.claim('a', { limit: 1 })).toHaveLength(1)
  await other.query('commit')
  expect(await jobs.claim('a', { limit: 5 })).toHaveLength(0)
  await scene.sql(`update $schema.job_limits set set_at = set_at - interval '2 min'`)
  expect(await jobs.claim('a', { limit: 5 })).toHaveLength(0)
})

test('jobs that become ready while a claim is under way keep to the limit or the pause of their name', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('few', { concurrency: 1 })
  await jobs.setLimit('last', { concurrency: 5 })
  await jobs.pause('paused')
  await jobs.enqueue('last')
  const other = await scene.connect()
  await other.query('begin')
  await other.query(`select from ${scene.schema}.job_limits where name = 'last' for update`)
  const claiming = jobs.claim(['few', 'last', 'paused'], { limit: 10 })
  await until('the claim has seen which names have jobs, and waits for the limit of the last', async () => {
    const [row] = await scene.sql(
      `select count(*) from pg_locks where not granted and locktype = 'transactionid'`,
    )
    return Number(row?.['count']) === 1
  })
  await scene.open().enqueueAll([...names('few', 3), ...names('paused', 3)])
  await other.query('rollback')
  expect((await claiming).map(({ name }) => name)).toEqual(['last'])
  expect((await jobs.claim(['few', 'paused'], { limit: 10 })).map(({ name }) => name)).toEqual(['few'])
})

test('another worker gets the place of a worker that stops', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('a', { concurrency: 1 })
  await jobs.enqueueAll(names('a', 2))
  let end = (): void => {}
  const first = jobs.work(
    {
      a: () =>
        new Promise<void>((resolve) => {
          end = resolve
        }),
    },
    NEVER,
  )
  await until('it runs', () => first.jobCount === 1)
  const seen: unknown[] = []
  jobs.work({ a: ({ payload }) => seen.push(payload) }, NEVER)
  const stopping = first.stop()
  end()
  await stopping
  await until('the other one has run', () => seen.length === 1)
})

test('within a window no more jobs begin than there are points, and the next ones begin when points come back', async () => {
  await using scene = await openScene()
  const fleet = [scene.open(), scene.open()]
  const [jobs = scene.open()] = fleet
  await jobs.migrate()
  await jobs.setLimit('a', { rate: { points: 5, window: 400 } })
  await jobs.enqueueAll(names('a', 20))
  const now = async (): Promise<number> => {
    const [row] = await scene.sql('select extract(epoch from clock_timestamp()) * 1000 as at')
    return Number(row?.['at'])
  }
  const startedAt = await now()
  let begun = 0
  for (const one of fleet) one.work({ a: () => (begun += 1) }, NEVER)
  await until('all have begun', () => begun === 20)
  // Four windows are full, and three of them have passed.
  expect((await now()) - startedAt).toBeGreaterThan(1200)
  await jobs.enqueueAll(names('a', 20))
  await until(
    'the points come back',
    async () => (await jobs.claim('a', { limit: 20 })).length > 0 || begun > 20,
  )
})

test('no job of a paused name begins until it is resumed; others do, and workers are told', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const seen: unknown[] = []
  await jobs.pause('a')
  await jobs.pause('a')
  const worker = jobs.work({ a: ({ payload }) => seen.push(payload), b: () => seen.push('b') }, NEVER)
  await jobs.enqueueAll([...names('a', 3), { name: 'b' }])
  await until('the other one has run', () => seen.length === 1)
  expect(await jobs.claim('a', { limit: 3 })).toEqual([])
  expect(await jobs.drain({ a: () => {} })).toEqual({ attempts: 0, failures: [] })
  expect(await jobs.limits()).toEqual([{ name: 'a', isPaused: true, concurrency: null, rate: null }])
  await jobs.resume('a')
  await until('they have run', () => seen.length === 4)
  expect(await jobs.limits()).toEqual([])
  expect(await scene.sql('select from $schema.job_limits')).toEqual([])
  await worker.stop()
})

test('a limit keeps its pause and a pause its limit, and bad ones are refused', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.setLimit('a', { concurrency: 2, rate: { points: 10, window: '1m' } })
  await jobs.pause('a')
  await jobs.setLimit('a', { concurrency: 4 })
  expect(await jobs.limits()).toEqual([{ name: 'a', isPaused: true, concurrency: 4, rate: null }])
  await jobs.resume('a')
  expect(await jobs.limits()).toEqual([{ name: 'a', isPaused: false, concurrency: 4, rate: null }])
  await jobs.setLimit('a', {})
  expect(await jobs.limits()).toEqual([])
  const refused = { code: 'invalid-argument' }
  await expect(jobs.setLimit('a', { concurrency: 0 })).rejects.toMatchObject(refused)
  await expect(jobs.setLimit('a', { rate: { points: 5, window: 'x' } })).rejects.toMatchObject(refused)
  await expect(jobs.setLimit('a', { max: 4 } as never)).rejects.toMatchObject(refused)
  await expect(jobs.setLimit('a', undefined as never)).rejects.toMatchObject(refused)
  await expect(jobs.pause('')).rejects.toMatchObject(refused)
})

test('an answer of a claim that is lost loses no place of a limit', async () => {
  await using proxied = await openProxied()
  const { scene, direct } = proxied
  await direct.setLimit('a', { concurrency: 2 })
  await direct.enqueueAll(names('a', 10))
  const lost = proxied.proxy.loseNextReply('jobs_claim')
  const seen = new Set<unknown>()
  const worker = scene
    .open({}, { url: proxied.url })
    .work({ a: ({ payload }) => void seen.add(payload) }, { onError: () => {} })
  await lost
  await until('all have run', () => seen.size === 10)
  await worker.stop()
  expect((await direct.count()).map(({ state, count }) => [state, count])).toEqual([['completed', 10]])
})

test('100,000 jobs of a paused name and of a name at its limit cost a claim no more pages', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(names('free', 500))
  const client = await scene.connect()
  const pagesOfClaim = async (): Promise<number> => {
    await client.query(`vacuum analyze ${scene.schema}.jobs`)
    const seen: number[] = []
    for (let round = 0; round < 4; round += 1) {
      await client.query('begin')
      const { rows } = await client.query(
        `explain (analyze, buffers, format json) select ${scene.schema}.jobs_claim('{paused,full,free}', 8, 20, 'w', 3600000, null, null)`,
      )
      await client.query('rollback')
      const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
      seen.push(Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks']))
    }
    return Math.min(...seen)
  }
  await jobs.pause('paused')
  await jobs.setLimit('full', { concurrency: 1 })
  await jobs.enqueueAll([...names('full', 10), ...names('paused', 10)])
  expect(await jobs.claim('full', { ttl: '1h' })).toHaveLength(1)
  const few = await pagesOfClaim()
  await jobs.enqueueAll([...names('full', 100_000), ...names('paused', 100_000)])
  expect(await pagesOfClaim()).toBeLessThan(1.5 * few)
})
