import { afterAll, beforeAll, expect, test } from 'vitest'
import { inBatches, type RunningJob } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

function many(count: number): { name: string; payload: number; backoff: number }[] {
  return Array.from({ length: count }, (_, n) => ({ name: 'a', payload: n, backoff: 1 }))
}

test('a full batch begins at once, the rest after the wait, and each job has its own result', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll(many(25))
  const sizes: number[] = []
  const handler = inBatches({ size: 10, wait: 300 }, async (batch) => {
    sizes.push(batch.length)
    return batch.map(({ payload }) => ({ of: payload }))
  })
  await jobs.drain({ a: handler }, { concurrency: 30 })
  expect(sizes).toEqual([10, 10, 5])
  for (const [n, id] of ids.entries()) expect((await jobs.find(id ?? ''))?.result).toEqual({ of: n })
})

test('a batch that throws fails each attempt, and a job may end in another way than its batch', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll(many(6).map((job) => ({ ...job, maxAttempts: 2 })))
  let batches = 0
  const handler = inBatches({ size: 6, wait: '1s' }, async (batch: readonly RunningJob[]) => {
    batches += 1
    if (batches === 1) throw new Error('all of them')
    await batch.find(({ payload }) => payload === 2)?.fail(new Error('this one'), { retry: false })
    await batch.find(({ payload }) => payload === 3)?.complete({ result: 'early' })
    return 'no array'
  })
  const { failures } = await jobs.drain({ a: handler }, { skipDelays: true, concurrency: 6 })
  expect(failures).toHaveLength(6)
  const ended = await Promise.all(ids.map((id) => jobs.find(id ?? '')))
  expect(ended.map((job) => [job?.state, job?.result])).toEqual([
    ['completed', null],
    ['completed', null],
    ['dead', null],
    ['completed', 'early'],
    ['completed', null],
    ['completed', null],
  ])
})

test('a batch with results for other than its jobs has failed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(many(3).map((job) => ({ ...job, maxAttempts: 1 })))
  const { failures } = await jobs.drain({ a: inBatches({ size: 3, wait: '1s' }, () => [1, 2]) })
  expect(failures.map(({ error }) => String(error))).toEqual(
    Array.from({ length: 3 }, () => expect.stringContaining('one for each of the 3 jobs')),
  )
})

test('a job that is lost while it waits for its batch is left out', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [first] = await jobs.enqueueAll(many(1))
  const seen: unknown[] = []
  const signals: AbortSignal[] = []
  const outcomes: unknown[] = []
  const batched = inBatches({ size: 2, wait: '1h' }, (batch) => {
    seen.push(...batch.map(({ payload }) => payload))
  })
  const handler = (job: RunningJob): unknown => {
    signals.push(job.signal)
    return batched(job)
  }
  jobs.work({ a: handler }, { ttl: '4s', onFailure: ({ outcome }) => outcomes.push(outcome) })
  await until('it waits for its batch', () => signals.length === 1)
  await jobs.cancel(first ?? '', { reason: 'not needed' })
  await until('its worker has heard of that', () => signals[0]?.aborted)
  const second = (await jobs.enqueue('a', 'second')) ?? ''
  expect(await jobs.waitFor(second)).toMatchObject({ state: 'completed' })
  expect(seen).toEqual(['second'])
  await until('the first one is reported', () => outcomes.length === 1)
  expect(outcomes).toEqual(['lost'])
})

test('a batch that never fills is given back when its worker stops', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const [id] = await jobs.enqueueAll(many(1))
  let isCalled = false
  const handler = inBatches({ size: 2, wait: '1h' }, () => {
    isCalled = true
  })
  const worker = jobs.work({ a: handler })
  await until('it runs', async () => (await jobs.find(id ?? ''))?.state === 'running')
  await worker.stop({ grace: 0 })
  expect(isCalled).toBe(false)
  expect(await jobs.find(id ?? '')).toMatchObject({ state: 'ready', failures: 0 })
})

test('a size or a wait that is none is refused', () => {
  expect(() => inBatches({ size: 0 }, () => {})).toThrow('`size`')
  expect(() => inBatches({} as never, () => {})).toThrow('`size`')
  expect(() => inBatches({ size: 2, wait: Number.POSITIVE_INFINITY }, () => {})).toThrow('`wait`')
  expect(() => inBatches({ size: 2 }, undefined as never)).toThrow('`work`')
})
