import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { awakeMs } from '../base/measured.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, JobsScene, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('a worker that is stopped takes no more jobs, and resolves when the running ones have ended', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'a' }])
  let open = (): void => {}
  const gate = new Promise<void>((resolve) => {
    open = resolve
  })
  const worker = jobs.work({ a: () => gate }, { concurrency: 2 })
  await until('two run', () => worker.jobCount === 2)
  let stopped = false
  const stopping = worker.stop().then(() => {
    stopped = true
  })
  await jobs.enqueue('a')
  expect(stopped).toBe(false)
  open()
  await stopping
  expect(await jobs.count()).toMatchObject([
    { state: 'completed', count: 2 },
    { state: 'ready', count: 2 },
  ])
})

test('a handler that still runs after the grace is told, and its job is given back to others at once, without a failure', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a')) ?? ''
  let reason: unknown
  const failures: unknown[] = []
  const worker = jobs.work(
    {
      a: ({ signal }) => {
        signal.addEventListener('abort', () => {
          reason = signal.reason
        })
        return new Promise(() => {})
      },
    },
    { onFailure: (failure) => failures.push(failure) },
  )
  await until('it runs', () => worker.jobCount === 1)
  await worker.stop({ grace: 50 })
  expect(reason).toMatchObject({ code: 'closed' })
  expect(await jobs.find(id)).toMatchObject({ state: 'ready', attempt: 1, failures: 0 })
  expect(failures).toEqual([])
  expect((await jobs.claim('a'))[0]?.attempt).toBe(2)
})

test('a worker that is stopped while it claims begins none of the jobs that arrive, and gives them back', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'a' }])
  let begun = 0
  const worker = jobs.work({
    a: () => {
      begun += 1
    },
  })
  await worker.stop()
  expect(begun).toBe(0)
  expect(await jobs.count()).toMatchObject([{ state: 'ready', count: 3 }])
})

test('a worker that is stopped gives back the jobs of a claim whose answer was lost', async () => {
  await using scene = await openScene()
  const direct = scene.open()
  await direct.migrate()
  const proxy = await startProxy({ targetPort: scene.server.port })
  await using _ = proxy
  await direct.enqueueAll([{ name: 'a', maxAttempts: 1 }])
  const url = scene.server.url.replace(String(scene.server.port), String(proxy.port))
  let begun = 0
  let stopped: Promise<void> | undefined
  const lost = proxy.loseNextReply('jobs_claim')
  const worker = scene.open({}, { url }).work(
    {
      a: () => {
        begun += 1
      },
    },
    {
      ttl: '1h',
      onError: () => {
        stopped ??= worker.stop()
      },
    },
  )
  await lost
  await until('it was stopped', () => stopped !== undefined)
  await stopped
  expect(begun).toBe(0)
  expect(await direct.claim('a')).toMatchObject([{ attempt: 2, failures: 0 }])
})

test('a worker that is stopped gives back at once the jobs of a claim whose answer was lost, whatever else still runs', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  await direct.enqueue('slow')
  let open = (): void => {}
  const gate = new Promise<void>((resolve) => {
    open = resolve
  })
  let stopped: Promise<void> | undefined
  let begun = 0
  const worker = scene.open({}, { url }).work(
    {
      slow: () => gate,
      a: () => {
        begun += 1
      },
    },
    {
      ttl: '1h',
      pollInterval: '1h',
      onError: () => {
        stopped ??= worker.stop({ grace: '10m' })
      },
    },
  )
  await until('the slow one runs, and the worker has asked nothing for half a second', async () => {
    const [row] = await scene.sql(`
      select bool_and(state = 'idle') and max(state_change) < clock_timestamp() - interval '500 ms' as quiet
      from pg_stat_activity where application_name = 'holdfast jobs' and query like '%$schema%'`)
    return worker.jobCount === 1 && row?.['quiet'] === true
  })
  // A claim names the handlers, and its text is sent once for each connection. So this finds the claim.
  const lost = proxy.loseNextReply('slow')
  const id = (await direct.enqueue('a')) ?? ''
  await lost
  await until('it is given back', async () => (await direct.find(id))?.state === 'ready')
  await until('only the slow one is left', () => worker.jobCount === 1)
  open()
  await stopped
  expect(begun).toBe(0)
  expect(await direct.find(id)).toMatchObject({ state: 'ready', attempt: 1, failures: 0 })
})

test.each(['at the begin', 'in the middle'])(
  'a worker that is stopped %s of an outage of seconds completes the jobs that have ended, within its grace',
  async (when) => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const id = (await direct.enqueue('a')) ?? ''
    const failures: JobFailure[] = []
    let errors = 0
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    const worker = scene.open({}, { url }).work(
      { a: () => gate },
      {
        ttl: '1h',
        pollInterval: '1h',
        onFailure: (failure) => failures.push(failure),
        onError: () => {
          errors += 1
        },
      },
    )
    await until('it runs', () => worker.jobCount === 1)
    proxy.refuse()
    open()
    // Claims and settlements both fail.
    if (when === 'in the middle') await until('several tries have failed', () => errors >= 8)
    const stopped = worker.stop({ grace: '60s' })
    const outUntil = performance.now() + 3000
    await until('the outage is over', () => performance.now() > outUntil)
    proxy.normal()
    const normalAt = performance.now()
    await stopped
    expect(await direct.find(id)).toMatchObject({ state: 'completed', attempt: 1 })
    expect(failures).toEqual([])
    expect(performance.now() - normalAt).toBeLessThan(30_000)
  },
)

test('a worker that is stopped while the database is out of reach reports the ended jobs as unknown', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const ids = await direct.enqueueAll([{ name: 'good' }, { name: 'bad' }])
  const failures: JobFailure[] = []
  let open = (): void => {}
  const gate = new Promise<void>((resolve) => {
    open = resolve
  })
  const worker = scene.open({}, { url }).work(
    {
      good: () => gate,
      bad: async () => {
        await gate
        throw new Error('no')
      },
    },
    { ttl: '1h', onFailure: (failure) => failures.push(failure), onError: () => {} },
  )
  await until('both run', () => worker.jobCount === 2)
  proxy.refuse()
  open()
  await worker.stop({ grace: 100 })
  await until('both are told', () => failures.length === 2)
  failures.sort((a, b) => Number(a.job.id) - Number(b.job.id))
  expect(failures).toMatchObject([
    { job: { id: ids[0] }, outcome: 'unknown', error: { code: 'store-unavailable', key: ids[0] } },
    { job: { id: ids[1] }, outcome: 'unknown', error: { message: 'no' } },
  ])
})

test('a worker that is stopped after an outage of a second gives back the jobs of a claim whose answer was lost', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const id = (await direct.enqueue('a')) ?? ''
  let stopped: Promise<void> | undefined
  const lost = proxy.loseNextReply('jobs_claim')
  const worker = scene.open({}, { url }).work(
    { a: () => {} },
    {
      ttl: '1h',
      onError: () => {
        stopped ??= worker.stop()
      },
    },
  )
  await lost
  proxy.refuse()
  const outUntil = performance.now() + 1000
  await until('the outage is over', () => stopped !== undefined && performance.now() > outUntil)
  proxy.normal()
  await stopped
  expect(await direct.find(id)).toMatchObject({ state: 'ready', attempt: 1, failures: 0 })
})

test.each(['worker.stop', 'jobs.close'])(
  '%s keeps to its grace while the database hangs, and the leases run out',
  async (call) => {
    await using server = await startPostgres()
    await using scene = new JobsScene(server)
    const others = scene.open()
    await others.migrate()
    const ids = await others.enqueueAll([{ name: 'a' }, { name: 'a' }])
    const jobs = scene.open()
    const errors: unknown[] = []
    const worker = jobs.work(
      { a: () => new Promise(() => {}) },
      { ttl: '2s', onFailure: () => {}, onError: (error) => errors.push(error) },
    )
    await until('both run', () => worker.jobCount === 2)
    await server.pause()
    const tookMs = await awakeMs(() =>
      call === 'worker.stop' ? worker.stop({ grace: '500ms' }) : jobs.close({ grace: '500ms' }),
    )
    // A request that hung before was waited for until its own limit of 11 s, and then sent again.
    expect(tookMs).toBeLessThan(8000)
    const before = errors.length
    await server.resume()
    const taken: string[] = []
    await until('another one may have them', async () => {
      for (const { id } of await others.claim('a', { limit: 2 })) taken.push(id)
      return taken.length === 2
    })
    expect(taken.sort()).toEqual([...ids].sort())
    expect(errors).toHaveLength(before)
  },
)

test('a job that goes on while jobs close may enqueue another one', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  let closing: Promise<void> | undefined
  const failures: unknown[] = []
  jobs.work(
    {
      a: async () => {
        closing = jobs.close()
        expect(() => jobs.work({ a: () => {} })).toThrow('closed')
        await jobs.enqueue('b')
      },
    },
    { onFailure: (failure) => failures.push(failure) },
  )
  await jobs.enqueue('a')
  await until('it has closed', () => closing !== undefined)
  await closing
  expect(failures).toEqual([])
  await expect(jobs.enqueue('b')).rejects.toMatchObject({ code: 'closed' })
  expect(await scene.sql('select name from $schema.jobs')).toEqual([{ name: 'b' }])
})

test('jobs that close wait for what is being enqueued', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('a', null, { key: 'k', transaction: client })
  const enqueued = jobs.enqueue('a', null, { key: 'k' })
  await until('it waits for the other transaction', async () => {
    const [row] = await scene.sql('select count(*)::int as waiting from pg_locks where not granted')
    return row?.['waiting'] === 1
  })
  const closed = jobs.close()
  await client.query('rollback')
  expect(await enqueued).toMatch(/^\d+$/)
  await closed
})

test('closing stops the workers, ends the connections, and takes no more jobs', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const worker = jobs.work({ a: () => {} })
  await jobs.close()
  expect(worker.jobCount).toBe(0)
  await expect(jobs.enqueue('a')).rejects.toMatchObject({ code: 'closed' })
  expect(() => jobs.work({ a: () => {} })).toThrow('closed')
  await expect(jobs.find('1')).rejects.toThrow('The store was closed. Open a new one with createJobs().')
  await until('no connection is left', async () => {
    const rows = await scene.sql(
      `select 1 from pg_stat_activity where application_name like 'holdfast jobs%'`,
    )
    return rows.length === 0
  })
  await jobs.close()
})
