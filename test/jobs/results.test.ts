import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobView, RunningJob } from '../../src/jobs/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, JobsScene, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('what a handler returns is the result of its job, for those who wait for it', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const results: Record<string, unknown> = {
    object: { text: 'zero \u0000, "quoted" \\, half \ud800', list: [1, null] },
    number: 0,
    text: 'null',
    nothing: undefined,
    null: null,
  }
  const names = Object.keys(results)
  jobs.work(Object.fromEntries(names.map((name) => [name, () => results[name]])))
  const ids = await jobs.enqueueAll(names.map((name) => ({ name })))
  const ended = await Promise.all(ids.map((id) => jobs.waitFor(id ?? '')))
  expect(ended.map((job) => [job?.name, job?.state, job?.result])).toEqual(
    names.map((name) => [name, 'completed', results[name] ?? null]),
  )
})

test('a result that is not JSON leaves the job completed without it, and is told once for each name', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxPayloadBytes: 20 })
  await jobs.migrate()
  const errors: unknown[] = []
  const failures: unknown[] = []
  jobs.work(
    { map: () => ({ seen: new Map() }), long: async () => 'x'.repeat(30) },
    { onError: (error) => errors.push(error), onFailure: (failure) => failures.push(failure) },
  )
  for (const name of ['map', 'long', 'map'])
    expect(await jobs.waitFor((await jobs.enqueue(name)) ?? '')).toMatchObject({
      state: 'completed',
      result: null,
      failures: 0,
    })
  expect(errors).toMatchObject([
    { code: 'invalid-argument', message: expect.stringContaining('`result.seen`') },
    { code: 'invalid-argument', message: expect.stringContaining('at most 20 bytes') },
  ])
  expect(failures).toEqual([])
})

test('complete takes a result, in a transaction too, and refuses one that is not JSON', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  const refusals: unknown[] = []
  jobs.work({
    a: async (job) => {
      await job.complete({ result: { when: 1n } }).catch((error) => refusals.push(error))
      await client.query('begin')
      await job.complete({ transaction: client, result: ['in a transaction'] })
      await client.query('commit')
      return 'has no effect'
    },
  })
  const id = (await jobs.enqueue('a')) ?? ''
  expect(await jobs.waitFor(id)).toMatchObject({ state: 'completed', result: ['in a transaction'] })
  expect(refusals).toMatchObject([{ code: 'invalid-argument' }])
  const [other] = await jobs.enqueueAll([{ name: 'b' }])
  const [claimed] = await jobs.claim('b')
  await claimed?.complete({ result: 7 })
  expect((await jobs.find(other ?? ''))?.result).toBe(7)
})

test('results go to their own jobs when many end at once and one of them is held up', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 40 }, (_, n) => ({ name: 'a', payload: n })))
  const client = await scene.connect()
  const claimed = await jobs.claim<'a'>('a', { limit: 40 })
  await client.query('begin')
  await client.query(`select from ${scene.schema}.jobs where id = ${claimed[3]?.id} for update`)
  const settling = Promise.all(
    claimed.map((job, n) => job.complete(n % 3 === 0 ? { result: { of: job.payload } } : {})),
  )
  await until('the others are completed', async () => {
    const [row] = await scene.sql('select count(*)::int as ended from $schema.ended_jobs')
    return row?.['ended'] === 39
  })
  await client.query('commit')
  await settling
  for (const [n, { id, payload }] of claimed.entries())
    expect((await jobs.find(id))?.result).toEqual(n % 3 === 0 ? { of: payload } : null)
})

test('a wait ends with a job that is dead, cancelled or missing, and with its signal', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  jobs.work(
    {
      bad: () => {
        throw new Error('no')
      },
    },
    { onFailure: () => {} },
  )
  const bad = (await jobs.enqueue('bad', 1, { maxAttempts: 2, backoff: 1 })) ?? ''
  expect(await jobs.waitFor(bad)).toMatchObject({ state: 'dead', failures: 2, result: null })
  const idle = (await jobs.enqueue('idle')) ?? ''
  const waiting = jobs.waitFor(idle)
  await jobs.cancel(idle, { reason: 'not needed' })
  expect(await waiting).toMatchObject({ state: 'cancelled', error: 'not needed' })
  expect(await jobs.waitFor('987654321')).toBeNull()
  const left = (await jobs.enqueue('idle')) ?? ''
  const controller = new AbortController()
  const aborted = jobs.waitFor(left, { signal: controller.signal })
  controller.abort(new Error('enough'))
  await expect(aborted).rejects.toThrow('enough')
  await expect(jobs.waitFor(left, { signal: controller.signal })).rejects.toThrow('enough')
  const open = jobs.waitFor(left)
  const refused = expect(open).rejects.toMatchObject({ code: 'closed' })
  await jobs.close()
  await refused
})

test('a watch tells the progress and the attempts of a job, and those who wait are told by messages', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  const waiting = scene.open()
  await jobs.migrate()
  const seen: JobView[] = []
  const isSeen = (done: number, attempt: number): boolean =>
    seen.some(({ progress }) => {
      const told = progress as { done: number; attempt: number } | null
      return told?.done === done && told.attempt === attempt
    })
  const id = (await jobs.enqueue('a', 1, { backoff: 1 })) ?? ''
  for await (const job of waiting.watch(id)) {
    // Nobody works before the watch has begun.
    if (seen.push(job) > 1) continue
    jobs.work(
      {
        a: async ({ attempt, setProgress }) => {
          for (let done = 1; done <= 3; done += 1) {
            await setProgress({ done, of: 3, attempt })
            await until('the watch has told it', () => isSeen(done, attempt))
          }
          if (attempt === 1) throw new Error('again')
          return 'end'
        },
      },
      { onFailure: () => {} },
    )
  }
  expect(seen[0]).toMatchObject({ state: 'ready', progress: null })
  expect(seen.at(-1)).toMatchObject({ state: 'completed', progress: { done: 3, of: 3, attempt: 2 } })
  for (const attempt of [1, 2]) for (const done of [1, 2, 3]) expect(isSeen(done, attempt)).toBe(true)
  expect((await jobs.find(id))?.result).toBe('end')
})

test.each([
  ['that returns', () => Promise.resolve()],
  ['that completes itself', (job: RunningJob) => job.complete()],
])('the last progress of a handler %s is kept, although nobody awaits it', async (_how, end) => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  jobs.work({
    async copy(job) {
      for (let part = 1; part <= 30; part += 1) {
        void job.setProgress(part)
        if (part % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 1))
      }
      await end(job)
      // Too late. It ends no process.
      void job.setProgress(31)
    },
  })
  for (let count = 0; count < 20; count += 1) {
    const id = (await jobs.enqueue('copy')) ?? ''
    await jobs.waitFor(id)
    expect((await jobs.find(id))?.progress).toBeGreaterThanOrEqual(30)
  }
})

test('of many reports at once the last one stays, and an attempt that was taken over can report nothing', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const [old] = await jobs.claim('a', { ttl: '5s' })
  await Promise.all(Array.from({ length: 1000 }, (_, n) => old?.setProgress(n)))
  expect((await jobs.find(id))?.progress).toBe(999)
  await expect(old?.setProgress('x'.repeat(9000))).rejects.toMatchObject({ code: 'invalid-argument' })
  const current = await until('another one has it', async () => (await jobs.claim('a'))[0])
  await expect(old?.setProgress('late')).rejects.toMatchObject({ code: 'lease-lost' })
  await current.setProgress('mine')
  await current.complete()
  expect(await jobs.find(id)).toMatchObject({ state: 'completed', progress: 'mine' })
})

test('a job that waits for a transaction of its own is not held up by its progress', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const client = await scene.connect()
  const [job] = await jobs.claim('a')
  await client.query('begin')
  await job?.complete({ transaction: client })
  await job?.setProgress('while the transaction is open')
  const waiting = jobs.waitFor(id)
  await client.query('commit')
  expect(await waiting).toMatchObject({ state: 'completed', progress: null })
})

test('the progress of a job that is locked for a moment is stored after that', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  const client = await scene.connect()
  const [job] = await jobs.claim('a')
  await client.query('begin')
  await client.query(`select from ${scene.schema}.jobs for update`)
  const telling = [
    job?.setProgress('first'),
    new Promise((resolve) => setTimeout(resolve, 30)),
    job?.setProgress('last'),
  ]
  await telling[1]
  await client.query('commit')
  await Promise.all(telling)
  expect(await jobs.find(id)).toMatchObject({ progress: 'last' })
})

test('a lost answer and a restart of the database lose no result and no wait', async () => {
  await using server = await startPostgres()
  await using scene = new JobsScene(server)
  const direct = scene.open()
  await direct.migrate()
  await using proxy = await startProxy({ targetPort: server.port })
  const url = server.url.replace(String(server.port), String(proxy.port))
  const jobs = scene.open({}, { url })
  const id = (await direct.enqueue('a')) ?? ''
  const waiting = jobs.waitFor(id)
  await until(
    'it is watched',
    async () => (await scene.sql('select watched from $schema.jobs'))[0]?.['watched'],
  )
  const lost = proxy.loseNextReply('jobs_settle')
  const worker = jobs.work({ a: () => ({ made: 'once' }) }, { onError: () => {} })
  await lost
  expect(await waiting).toMatchObject({ state: 'completed', attempt: 1, result: { made: 'once' } })
  const next = (await direct.enqueue('b')) ?? ''
  const second = jobs.waitFor(next)
  await until(
    'it is watched',
    async () => (await scene.sql('select watched from $schema.jobs'))[0]?.['watched'],
  )
  await server.restart()
  const claimed = await until('the server is back', async () => {
    try {
      return (await direct.claim('b'))[0]
    } catch {
      return undefined
    }
  })
  await claimed.complete({ result: 'after it' })
  expect(await second).toMatchObject({ result: 'after it' })
  await worker.stop()
})

test('a thousand waits share their statements, and leave nothing behind', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll(Array.from({ length: 1000 }, (_, n) => ({ name: 'a', payload: n })))
  const waits = ids.map((id) => jobs.waitFor(id ?? ''))
  jobs.work({ a: (job: RunningJob) => job.payload }, { concurrency: 100 })
  const ended = await Promise.all(waits)
  expect(ended.map((job) => job?.result)).toEqual(ended.map((_, n) => n))
})

test('a role that may only look waits, too', async () => {
  await using proxied = await openProxied()
  const { scene, direct } = proxied
  await scene.sql(`
    create role looker_${scene.schema} login;
    grant usage on schema $schema to looker_${scene.schema};
    grant select on $schema.jobs, $schema.ended_jobs to looker_${scene.schema}`)
  const url = new URL(scene.server.url)
  url.username = `looker_${scene.schema}`
  const looker = scene.open({}, { url: url.href })
  const id = (await direct.enqueue('a')) ?? ''
  const waiting = looker.waitFor(id)
  const [job] = await direct.claim('a')
  await job?.complete({ result: 1 })
  expect(await waiting).toMatchObject({ result: 1 })
  await scene.sql(`drop owned by looker_${scene.schema}; drop role looker_${scene.schema}`)
})
