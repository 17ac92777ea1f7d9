import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure, RunningJob } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const HANDLERS: Record<string, { handle: (job: RunningJob) => unknown; end: object; outcomes: string[] }> = {
  'fails its job': {
    handle: (job) => {
      void job.fail(new Error('bad address'), { retry: false })
    },
    end: { state: 'dead', error: expect.stringContaining('bad address'), attempt: 1 },
    outcomes: [],
  },
  'fails its job and throws another error': {
    handle: (job) => {
      void job.fail(new Error('bad address'), { retry: false })
      throw new Error('another one')
    },
    end: { state: 'dead', error: expect.stringContaining('bad address'), attempt: 1 },
    outcomes: ['dead'],
  },
  'completes its job': {
    handle: async (job) => {
      void job.complete({ result: 'its own' })
      return 'of the handler'
    },
    end: { state: 'completed', result: 'its own', attempt: 1 },
    outcomes: [],
  },
  'gives its job back once': {
    handle: (job) => {
      if (job.attempt === 1) void job.giveBack()
    },
    end: { state: 'completed', attempt: 2, failures: 0 },
    outcomes: [],
  },
}

test.each(Object.entries(HANDLERS))(
  'a handler that %s and does not await that has its way',
  async (_how, { handle, end, outcomes }) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const id = (await jobs.enqueue('a')) ?? ''
    const failures: JobFailure[] = []
    const worker = jobs.work({ a: handle }, { onFailure: (failure) => failures.push(failure) })
    await jobs.waitFor(id)
    await until('no job is left here', () => worker.jobCount === 0)
    expect(await jobs.find(id)).toMatchObject(end)
    expect(failures.map(({ outcome }) => outcome)).toEqual(outcomes)
  },
)

test('a failure that a handler does not await, and that gets no answer, is asked again', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const id = (await direct.enqueue('a')) ?? ''
  const lost = proxy.loseNextReply('jobs_settle')
  const handlers = {
    a: (job: RunningJob) => {
      void job.fail(new Error('bad address'), { retry: false })
    },
  }
  const worker = scene.open({}, { url }).work(handlers, { onError: () => {} })
  await lost
  await until('no job is left here', () => worker.jobCount === 0)
  expect(await direct.find(id)).toMatchObject({
    state: 'dead',
    error: expect.stringContaining('bad address'),
  })
})

test('a handler that does not await a settlement whose transaction never answers is cut off after `maxRun`', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const id = (await jobs.enqueue('a', null, { maxAttempts: 1 })) ?? ''
  const transaction = { query: () => new Promise<never>(() => {}) }
  const failures: JobFailure[] = []
  const handlers = {
    a: (job: RunningJob) => {
      void job.complete({ transaction })
    },
  }
  const worker = jobs.work(handlers, { maxRun: 300, onFailure: (failure) => failures.push(failure) })
  await jobs.waitFor(id)
  await until('no job is left here', () => worker.jobCount === 0)
  expect(failures).toMatchObject([{ outcome: 'dead', error: { code: 'task-failed' } }])
})
