import { fork } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { createJobs, type JobFailure } from '../../src/jobs/index.ts'
import { bundled } from '../servers/bundled.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)
afterEach(() => {
  vi.restoreAllMocks()
})

test('a database that hangs for longer than a lease: the handler is told meanwhile, and the job runs again once', async () => {
  await using server = await startPostgres()
  await using scene = new JobsScene(server)
  const jobs = scene.open()
  await jobs.migrate()
  const failures: JobFailure[] = []
  const attempts: number[] = []
  let told: unknown
  const id = (await jobs.enqueue('a', null, { backoff: 0 })) ?? ''
  jobs.work(
    {
      a: async ({ attempt, signal }) => {
        attempts.push(attempt)
        if (attempt > 1) return
        await server.pause()
        await once(signal, 'abort')
        told = signal.reason
        await server.resume()
      },
    },
    { ttl: '4s', onFailure: (failure) => failures.push(failure), onError: () => {} },
  )
  await until('it is completed', async () => (await jobs.find(id))?.state === 'completed')
  expect(told).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  expect(await jobs.find(id)).toMatchObject({ attempt: attempts.length })
  expect(attempts.length).toBeLessThanOrEqual(2)
})

/**
 * Parsers that an application sets so that numbers are exact and dates stay texts. They apply to every client of the
 * package in its process.
 */
const PARSERS: readonly [number, (text: string) => unknown][] = [
  [pg.types.builtins.INT8, BigInt],
  [pg.types.builtins.INT4, BigInt],
  [pg.types.builtins.BOOL, (text) => text],
  [pg.types.builtins.TIMESTAMPTZ, (text) => text],
  [pg.types.builtins.JSON, (text) => text],
  [pg.types.builtins.TEXT, (text) => ({ text })],
]

test.each(['jobs_enqueue', 'jobs_claim', 'jobs_renew', 'jobs_settle'])(
  'with the application’s own type parsers, a lost reply to %s costs nothing but a reported error',
  async (verb) => {
    await using scene = await openScene()
    const direct = scene.open()
    await direct.migrate()
    await using proxy = await startProxy({ targetPort: scene.server.port })
    const url = scene.server.url.replace(String(scene.server.port), String(proxy.port))
    const original = PARSERS.map(([type]) => [type, pg.types.getTypeParser(type)] as const)
    for (const [type, parser] of PARSERS) pg.types.setTypeParser(type, parser)
    const pool = new pg.Pool({ connectionString: url })
    const jobs = createJobs(pool, { schema: scene.schema })
    try {
      const errors: unknown[] = []
      const failures: JobFailure[] = []
      const ran: [unknown, number][] = []
      const lost = proxy.loseNextReply(verb)
      const enqueue = (payload: unknown): Promise<unknown> =>
        jobs
          .enqueue('a', payload, { key: JSON.stringify(payload), delay: 50 })
          .catch((error) => errors.push(error))
      await enqueue({ n: 1 })
      jobs.work(
        {
          a: async ({ payload, attempt, enqueuedAt, fail }) => {
            expect(enqueuedAt).toBeInstanceOf(Date)
            // The handler waits for a renewal whose reply is lost.
            if (verb === 'jobs_renew') await lost
            ran.push([payload, attempt])
            if (attempt === 1) await fail('again', { retryIn: 1 })
          },
        },
        { ttl: '6s', onError: (error) => errors.push(error), onFailure: (failure) => failures.push(failure) },
      )
      await lost
      await until('it is completed', async () => {
        const [row] = await scene.sql('select state, attempt from $schema.ended_jobs')
        return String((row?.['state'] as { text?: string } | undefined)?.text) === 'completed'
      })
      // A handler's own call rejects with this error, and so does the handler.
      const said = [...errors, ...failures.map(({ error }) => error)]
      expect(said.length).toBeGreaterThan(0)
      for (const error of said) expect(error).toMatchObject({ code: 'store-unavailable' })
      expect(ran[0]).toEqual([{ n: 1 }, 1])
      expect(ran.at(-1)).toEqual([{ n: 1 }, 2])
      expect(
        await jobs.find((await jobs.inspect()[Symbol.asyncIterator]().next()).value?.id ?? ''),
      ).toMatchObject({
        attempt: 2,
        failures: 1,
        endedAt: expect.any(Date),
      })
    } finally {
      for (const [type, parser] of original) pg.types.setTypeParser(type, parser)
      await jobs.close({ grace: 0 })
      await pool.end()
    }
  },
)

test.each([-3_600_000, 3_600_000])(
  'a client whose clock is off by %i ms works as any other',
  async (offMs) => {
    await using scene = await openScene()
    const real = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => real() + offMs)
    const jobs = scene.open()
    await jobs.migrate()
    const failures: JobFailure[] = []
    const aborted: boolean[] = []
    const later = await jobs.enqueue('later', null, { delay: '1h' })
    await jobs.enqueue('a', null, { delay: 200 })
    jobs.work(
      {
        later: () => {},
        a: async ({ id, signal }) => {
          await until('it was renewed', async () => {
            const [row] = await scene.sql(
              `select due_at > started_at + interval '5500 ms' as renewed from $schema.jobs where id = ${id}`,
            )
            return row?.['renewed'] === true
          })
          aborted.push(signal.aborted)
        },
      },
      { ttl: '5s', onFailure: (failure) => failures.push(failure) },
    )
    await until('it is completed', async () =>
      (await jobs.count()).some(({ name, state }) => name === 'a' && state === 'completed'),
    )
    expect([aborted, failures]).toEqual([[false], []])
    expect(await jobs.find(later ?? '')).toMatchObject({ state: 'delayed' })
  },
)

test('of many transactions that race for a key and mostly roll back, one job at a time is committed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  let committed = 0
  await Promise.all(
    [0, 1, 2].map(async (racer) => {
      const client = await scene.connect()
      for (let turn = 0; turn < 30; turn += 1) {
        await client.query('begin')
        const id = await jobs.enqueue('a', { racer, turn }, { key: 'k', transaction: client })
        const commits = (turn + racer) % 5 === 0
        await client.query(commits ? 'commit' : 'rollback')
        if (commits && id !== null) committed += 1
        const [job] = turn % 3 === 0 ? await jobs.claim('a') : []
        await job?.complete()
      }
    }),
  )
  const [left] = await jobs.claim('a')
  await left?.complete()
  expect(committed).toBeGreaterThan(1)
  expect(await jobs.count()).toMatchObject([{ name: 'a', state: 'completed', count: committed }])
})

test('twenty processes that start at once on an empty database share the jobs, each of which runs once', async () => {
  await using scene = await openScene()
  const program = await bundled(new URL('starting-worker.ts', import.meta.url))
  const children = Array.from({ length: 20 }, () =>
    fork(program, [scene.server.url, scene.schema], { execArgv: [], silent: true }),
  )
  let ran = ''
  for (const child of children) {
    child.stdout?.on('data', (ids) => {
      ran += ids
    })
  }
  try {
    const codes = await Promise.all(
      children.map(
        async (child) => (await once(child, 'close', { signal: AbortSignal.timeout(120_000) }))[0],
      ),
    )
    expect(codes).toEqual(children.map(() => 0))
    expect(await scene.open().count()).toMatchObject([{ name: 'a', state: 'completed', count: 100 }])
    // Attempts may be more than one: a process that ends during a claim gives back the jobs that it has not begun.
    const ids = ran.trim().split('\n')
    expect(ids).toHaveLength(100)
    expect(new Set(ids).size).toBe(100)
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
})
