import { afterAll, expect, onTestFinished, test } from 'vitest'
import { InvalidArgumentError } from '../../src/index.ts'
import { type JobEvents, jobEvents } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene } from './scene.ts'

afterAll(closeSharedServer)

const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

test('tell of a job from its enqueuing to its end, with how long it waited and ran', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const told = listen()
  const id = await jobs.enqueue('greet', 1)
  await jobs.enqueueAll([
    { name: 'fail', maxAttempts: 1 },
    { name: 'greet', key: 'k' },
    { name: 'greet', key: 'k' },
  ])
  expect(told('enqueued').map(({ name, count }) => [name, count])).toEqual([
    ['greet', 1],
    ['fail', 1],
    ['greet', 1],
  ])
  const broken = new Error('broken')
  const worker = jobs.work(
    {
      greet: () => {},
      fail: () => {
        throw broken
      },
    },
    { onFailure: () => {} },
  )
  await until('all have ended', async () => told('ended').length === 3)
  await worker.stop()
  const begun = told('begun').find((event) => event.id === id)
  expect(begun).toMatchObject({ name: 'greet', attempt: 1, trace: null, worker: expect.any(String) })
  expect(begun?.waitedMs).toBeGreaterThanOrEqual(0)
  expect(begun?.waitedMs).toBeLessThan(30_000)
  const ended = told('ended')
  expect(ended.find((event) => event.id === id)).toMatchObject({ outcome: 'completed', error: undefined })
  expect(ended.find(({ name }) => name === 'fail')).toMatchObject({ outcome: 'dead', error: broken })
  for (const { ranMs } of ended) expect(ranMs).toBeGreaterThanOrEqual(0)
})

test('say that a job was given back when its worker is stopped', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const told = listen()
  await jobs.enqueue('long')
  const worker = jobs.work({
    long: ({ signal }) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  })
  await until('it runs', async () => told('begun').length === 1)
  await worker.stop({ grace: 0 })
  expect(told('ended')).toMatchObject([{ name: 'long', outcome: 'given-back', error: undefined }])
})

test('keep the traceparent with the job, over its attempts, its death and its rebirth, in every way to enqueue', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const stop = jobEvents.on('enqueuing', ({ names, carry }) => {
    carry('no traceparent')
    if (!names.includes('bare')) carry(TRACE)
  })
  onTestFinished(stop)
  await jobs.enqueue('one')
  await jobs.enqueue('unique', 1, { key: 'k', ifTaken: 'update' })
  await jobs.enqueueAll([{ name: 'many' }, { name: 'many' }])
  await jobs.enqueueAll([
    { name: 'keyed', key: 'a', uniqueFor: 'running' },
    { name: 'keyed', key: 'b' },
  ])
  await jobs.enqueue('bare')
  const names = ['one', 'unique', 'many', 'keyed', 'bare']
  const claimed = await jobs.claim(names, { limit: 10 })
  const traces = Object.fromEntries(claimed.map(({ name, trace }) => [name, trace]))
  expect(traces).toEqual({ one: TRACE, unique: TRACE, many: TRACE, keyed: TRACE, bare: null })
  expect(claimed).toHaveLength(7)
  const one = claimed.find(({ name }) => name === 'one')
  await one?.fail('no', { retry: false })
  for (const job of claimed) if (job !== one) await job.complete()
  await jobs.retry({ name: 'one' })
  expect(await jobs.claim('one')).toMatchObject([{ trace: TRACE, attempt: 2 }])
})

test('a listener that throws changes nothing, nor does one whose around runs nothing', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const warnings: Error[] = []
  const onWarning = (warning: Error): void => void warnings.push(warning)
  process.on('warning', onWarning)
  onTestFinished(() => void process.off('warning', onWarning))
  const stops = [
    jobEvents.on('enqueuing', () => {
      throw new Error('of a listener')
    }),
    jobEvents.on('begun', ({ around }) => around(() => {})),
    jobEvents.on('begun', ({ around }) =>
      around((run) => {
        run()
        run()
        throw new Error('of a wrap')
      }),
    ),
  ]
  onTestFinished(() => {
    for (const stop of stops) stop()
  })
  const id = await jobs.enqueue('greet')
  let calls = 0
  const worker = jobs.work({
    greet: () => {
      calls += 1
    },
  })
  expect(await jobs.waitFor(id ?? '')).toMatchObject({ state: 'completed' })
  await worker.stop()
  expect(calls).toBe(1)
  await until('both were warned of', async () => warnings.length >= 2)
  expect(warnings.map(({ message }) => message)).toEqual([
    'A listener to the event `jobs:enqueuing` failed. The work goes on.',
    'A listener to the event `jobs:begun` failed. The work goes on.',
  ])
})

test('refuse an event that there is not', () => {
  expect(() => jobEvents.on('started' as 'begun', () => {})).toThrow(InvalidArgumentError)
  expect(() => jobEvents.on('begun', 1 as never)).toThrow(InvalidArgumentError)
})

function listen(): <Name extends keyof JobEvents>(name: Name) => JobEvents[Name][] {
  const heard: JobEvents[keyof JobEvents][] = []
  const stops = jobEvents.names.map((name) => jobEvents.on(name, (event) => heard.push(event)))
  onTestFinished(() => {
    for (const stop of stops) stop()
  })
  return (name) => heard.filter(({ event }) => event === name) as never
}

test('say that a job was completed although its handler was still running when its worker was stopped', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const told = listen()
  const id = (await jobs.enqueue('long')) ?? ''
  const worker = jobs.work({
    long: async (job) => {
      await job.complete()
      await new Promise(() => {})
    },
  })
  await until('it is completed', async () => (await jobs.find(id))?.state === 'completed')
  await worker.stop({ grace: 0 })
  expect(told('ended')).toMatchObject([{ name: 'long', outcome: 'completed', error: undefined }])
})
