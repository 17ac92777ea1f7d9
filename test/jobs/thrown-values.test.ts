import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobFailure } from '../../src/jobs/index.ts'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('a handler that throws a value without a text fails its job, and neither the worker nor the process', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const names = HOSTILE_VALUES.map(([name]) => name)
  await jobs.enqueueAll(names.map((payload) => ({ name: 'a', payload, maxAttempts: 1 })))
  await jobs.enqueue('b')
  const failures: JobFailure[] = []
  const done: unknown[] = []
  const worker = jobs.work(
    {
      a: ({ payload }) => {
        throw HOSTILE_VALUES.find(([name]) => name === payload)?.[1]()
      },
      b: () => done.push('b'),
    },
    { onFailure: (failure) => failures.push(failure), onError: () => {} },
  )
  await until('all have ended', () => failures.length === names.length && done.length === 1)
  expect(failures.map(({ outcome }) => outcome)).toEqual(names.map(() => 'dead'))
  for await (const { error, id } of jobs.inspect({ state: 'dead' })) {
    expect(error, id).toBeTypeOf('string')
    expect(error?.length ?? 0).toBeLessThanOrEqual(4000)
  }
  await worker.stop()
})

test('fail takes a value without a text', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll(HOSTILE_VALUES.map(() => ({ name: 'a' })))
  const claimed = await jobs.claim('a', { limit: ids.length })
  for (const [index, job] of claimed.entries())
    expect(await job.fail(HOSTILE_VALUES[index]?.[1](), { retry: false })).toBe('dead')
  expect(await jobs.count()).toMatchObject([{ state: 'dead', count: ids.length }])
})

test('listeners of a worker that throw or reject with a value without a text end nothing', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const warnings: Error[] = []
  const warn = (warning: Error): void => {
    if ('code' in warning && warning.code === 'HOLDFAST_JOBS') warnings.push(warning)
  }
  process.on('warning', warn)
  try {
    for (const [name, make] of HOSTILE_VALUES) {
      for (const isAsync of [false, true]) {
        warnings.length = 0
        const id = (await jobs.enqueue('a', null, { maxAttempts: 1 })) ?? ''
        const hostile = (): void => {
          throw make()
        }
        const listener = isAsync ? async () => hostile() : hostile
        const worker = jobs.work({ a: hostile }, { onFailure: listener, onError: listener })
        await until(`it is dead (${name})`, async () => (await jobs.find(id))?.state === 'dead')
        await until('the process is warned', () => warnings.length > 0)
        await worker.stop()
      }
    }
  } finally {
    process.off('warning', warn)
  }
})

test('a warning of a failed job controls no terminal, whatever its name and its error are', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const name = 'mail\x1b[2J'
  await jobs.enqueue(name, null, { maxAttempts: 1 })
  const warned = new Promise<Error & { detail?: string }>((resolve) => process.once('warning', resolve))
  const failing = (): void => {
    throw new Error('no address\x1b]0;title\x07')
  }
  const worker = jobs.work({ [name]: failing })
  const { message, detail = '' } = await warned
  await worker.stop()
  expect(message).toContain('(mail\\x1b[2J) failed.')
  expect(detail).toMatch(/^Error: no address\\x1b\]0;title\\x07\n {4}at /)
})
