import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure, RunningJob } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { CLIENT_KINDS, closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

/** Longer than a busy machine keeps a process from its renewal. */
const LONG_TTL = '6s'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('an attempt that lost its job cannot settle it, and its writes in the same transaction have no effect', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await scene.sql('create table $schema.effects (attempt integer)')
  await jobs.enqueue('a', null, { backoff: 0 })
  const [first] = await jobs.claim('a', { ttl: '3s' })
  const second = await until('another one has it', async () => (await jobs.claim('a'))[0])
  expect([first?.attempt, second.attempt, second.failures]).toEqual([1, 2, 1])

  const lost = { code: 'lease-lost', reason: 'expired', key: first?.id }
  await expect(first?.complete()).rejects.toMatchObject(lost)
  await expect(first?.fail('x')).rejects.toMatchObject(lost)
  await expect(first?.giveBack()).rejects.toMatchObject(lost)
  const client = await scene.connect()
  await client.query('begin')
  await client.query(`insert into ${scene.schema}.effects values (1)`)
  await expect(first?.complete({ transaction: client })).rejects.toMatchObject(lost)
  await client.query('rollback')

  expect(await jobs.find(second.id)).toMatchObject({ state: 'running', attempt: 2 })
  await second.complete()
  expect(await scene.sql('select * from $schema.effects')).toEqual([])
})

test('no worker takes over a job while the transaction that completes it is still open', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a', null, { backoff: 0 })
  const [job] = await jobs.claim('a', { ttl: '5s' })
  const client = await scene.connect()
  await client.query('begin')
  await job?.complete({ transaction: client })
  await until(
    'its lease is over',
    async () => ((await jobs.find(job?.id ?? ''))?.dueAt ?? new Date()) < new Date(),
  )
  expect(await jobs.claim('a')).toEqual([])
  await client.query('commit')
  expect(await jobs.find(job?.id ?? '')).toMatchObject({ state: 'completed', attempt: 1 })
})

test('a job that kills its workers is dead after its last attempt', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a', null, { maxAttempts: 2, backoff: 0 })) ?? ''
  for (const attempt of [1, 2]) {
    const [job] = await until('it is claimed', async () => {
      const claimed = await jobs.claim('a', { ttl: '3s', label: 'web-1' })
      return claimed.length > 0 && claimed
    })
    expect(job?.attempt).toBe(attempt)
  }
  const dead = await until('it is dead', async () => {
    await jobs.claim('nothing else')
    const found = await jobs.find(id)
    return found?.state === 'dead' && found
  })
  expect(dead).toMatchObject({ failures: 2, worker: 'web-1' })
  expect(dead.error).toContain('web-1 was not heard of')
})

test.each(CLIENT_KINDS)(
  'with %s, a handler is told that its job is lost before another worker can have it, while the network swallows everything',
  async (kind) => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const jobs = scene.open({}, { kind, url })
    const failures: JobFailure[] = []
    let told: { readonly reason: unknown; readonly at: number } | undefined
    await direct.enqueue('a', null, { backoff: 0 })
    jobs.work(
      {
        a: async ({ signal }) => {
          proxy.halfOpen()
          await new Promise((resolve) => signal.addEventListener('abort', resolve))
          told = { reason: signal.reason, at: performance.now() }
        },
      },
      { ttl: LONG_TTL, onFailure: (failure) => failures.push(failure), onError: () => {} },
    )
    await until('it runs', async () => (await direct.count())[0]?.state === 'running')
    const next = await until('another one has it', async () => (await direct.claim('a'))[0])
    const takenAt = performance.now()
    expect(next.attempt).toBe(2)
    expect(told?.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    expect(told?.at).toBeLessThan(takenAt)
    // When the network is back, the worker cannot complete a job that it has lost.
    proxy.normal()
    await until('it says so', () => failures.length > 0)
    expect(failures).toMatchObject([{ outcome: 'lost' }])
    expect(await direct.find(next.id)).toMatchObject({ state: 'running', attempt: 2 })
  },
)

test('a claim whose answer was lost costs no attempt and no ttl', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  await direct.enqueueAll([{ name: 'a' }, { name: 'a' }])
  const seen: RunningJob[] = []
  const lost = proxy.loseNextReply('jobs_claim')
  scene.open({}, { url }).work({ a: (job) => seen.push(job) }, { ttl: '1h', onError: () => {} })
  await lost
  await until(
    'both are done',
    async () => (await direct.count())[0]?.state === 'completed' && seen.length === 2,
  )
  expect(seen.map(({ attempt }) => attempt)).toEqual([1, 1])
})

test('a completion whose answer was lost is asked again, and is no loss', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const failures: JobFailure[] = []
  const errors: unknown[] = []
  await direct.enqueue('a')
  const lost = proxy.loseNextReply('jobs_settle')
  const options = {
    onFailure: (failure: JobFailure) => failures.push(failure),
    onError: (error: unknown) => errors.push(error),
  }
  const worker = scene.open({}, { url }).work({ a: () => {} }, options)
  await lost
  await until('the worker is through', () => errors.length > 0 && worker.jobCount === 0)
  expect(failures).toEqual([])
  expect(errors[0]).toMatchObject({ code: 'store-unavailable' })
  expect((await direct.count())[0]).toMatchObject({ state: 'completed', count: 1 })
})

test('a failure whose answer was lost is asked again, and is told as the result of the job', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const failures: JobFailure[] = []
  const id = (await direct.enqueue('a', null, { maxAttempts: 1 })) ?? ''
  const lost = proxy.loseNextReply('jobs_settle')
  const handlers = {
    a: () => {
      throw new Error('no')
    },
  }
  const onFailure = (failure: JobFailure) => failures.push(failure)
  scene.open({}, { url }).work(handlers, { onFailure, onError: () => {} })
  await lost
  await until('it is told', () => failures.length > 0)
  expect(failures).toMatchObject([{ outcome: 'dead', error: { message: 'no' } }])
  expect(await direct.find(id)).toMatchObject({ state: 'dead', failures: 1 })
})

test.each(['throws on', 'goes on'])(
  'a handler whose own failure got no answer, and that %s, has failed its job as it said, once',
  async (how) => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const failures: JobFailure[] = []
    const id = (await direct.enqueue('a', null, { maxAttempts: 9 })) ?? ''
    const lost = proxy.loseNextReply('jobs_settle')
    const handlers = {
      a: async (job: RunningJob) => {
        const answer = job.fail(new Error('no use'), { retry: false })
        await (how === 'throws on' ? answer : answer.catch(() => {}))
      },
    }
    const onFailure = (failure: JobFailure) => failures.push(failure)
    const worker = scene.open({}, { url }).work(handlers, { onFailure, onError: () => {} })
    await lost
    await until('the worker is through', () => worker.jobCount === 0)
    expect(failures).toMatchObject(how === 'goes on' ? [] : [{ outcome: 'dead' }])
    const found = await direct.find(id)
    expect(found).toMatchObject({ state: 'dead', failures: 1, attempt: 1 })
    expect(found?.error).toContain('no use')
  },
)

test('a handler whose own failure never reached the database does not complete its job by ending', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const id = (await direct.enqueue('a')) ?? ''
  const worker = scene.open({}, { url }).work(
    {
      a: async (job) => {
        proxy.refuse()
        await job.fail('no use', { retry: false }).catch(() => proxy.normal())
      },
    },
    { onError: () => {} },
  )
  await until('it has ended', async () => {
    const { state } = (await direct.find(id)) ?? {}
    return worker.jobCount === 0 && state !== 'ready' && state !== 'running'
  })
  expect(await direct.find(id)).toMatchObject({ state: 'dead', error: 'no use' })
})

test('an enqueue whose answer was lost says that its result is unknown', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const lost = proxy.loseNextReply('jobs_enqueue')
  await expect(scene.open({}, { url }).enqueue('a')).rejects.toMatchObject({ code: 'store-unavailable' })
  await lost
  expect((await direct.count())[0]).toMatchObject({ count: 1 })
})

test('a handler that does not end in its time has failed, and cannot complete the job any more', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a', null, { maxAttempts: 1 })
  const failures: JobFailure[] = []
  let late: Promise<unknown> | undefined
  const worker = jobs.work(
    {
      a: (job) => {
        late = new Promise((resolve) => job.signal.addEventListener('abort', resolve)).then(() =>
          until('the job is dead', async () => (await jobs.find(job.id))?.state === 'dead').then(() =>
            job.complete().catch((error: unknown) => error),
          ),
        )
        return new Promise(() => {})
      },
    },
    { maxRun: 100, onFailure: (failure) => failures.push(failure) },
  )
  await until('its place is free', () => failures.length > 0 && worker.jobCount === 0)
  expect(failures).toMatchObject([{ outcome: 'dead', error: { code: 'task-failed' } }])
  expect(failures[0]?.error).toMatchObject({
    message: expect.stringContaining('did not end within 100 ms (`maxRun`)'),
  })
  expect(await late).toMatchObject({ code: 'lease-lost' })
})

test('after a transaction that was rolled back, a handler hears of the end of its lease', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const client = await scene.connect()
  const id = (await direct.enqueue('a', null, { backoff: 0 })) ?? ''
  let told: { readonly reason: unknown; readonly at: number } | undefined
  scene.open({}, { url }).work(
    {
      a: async (job) => {
        await client.query('begin')
        await job.complete({ transaction: client })
        await client.query('rollback')
        proxy.halfOpen()
        await once(job.signal, 'abort')
        told = { reason: job.signal.reason, at: performance.now() }
        expect(() => job.assertHeld()).toThrow('ran out')
      },
    },
    { ttl: LONG_TTL, onError: () => {}, onFailure: () => {} },
  )
  await until('it runs', async () => (await direct.find(id))?.state === 'running')
  const next = await until('another one has it', async () => (await direct.claim('a'))[0])
  const takenAt = performance.now()
  expect(next).toMatchObject({ attempt: 2, failures: 1 })
  expect(told?.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  expect(told?.at).toBeLessThan(takenAt)
  proxy.normal()
})

test('a handler that goes on after its transaction has committed is not told of an end', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  const id = (await jobs.enqueue('a')) ?? ''
  const told: unknown[] = []
  const failures: JobFailure[] = []
  jobs.work(
    {
      a: async (job) => {
        await client.query('begin')
        await job.complete({ transaction: client })
        await client.query('commit')
        const overAt = performance.now() + 6500
        await until('its lease would be over', () => performance.now() > overAt)
        job.assertHeld()
        told.push(job.signal.aborted)
      },
    },
    { ttl: LONG_TTL, onFailure: (failure) => failures.push(failure) },
  )
  await until('it is through', () => told.length > 0 || failures.length > 0)
  expect([told, failures]).toEqual([[false], []])
  expect(await jobs.find(id)).toMatchObject({ state: 'completed', attempt: 1 })
})
