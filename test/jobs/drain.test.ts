import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('drain runs all jobs of its names, also those that they enqueue and those of a group, and no others', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'parent' },
    { name: 'child', payload: 'first', group: 'g' },
    { name: 'child', payload: 'second', group: 'g' },
    { name: 'other' },
    { name: 'child', payload: 'late', delay: '1h' },
  ])
  const done: unknown[] = []
  const drained = await jobs.drain({
    parent: async () => {
      await jobs.enqueue('child', 'of the parent')
    },
    child: ({ payload }) => {
      done.push(payload)
    },
  })
  expect(drained).toEqual({ attempts: 4, failures: [] })
  expect(new Set(done)).toEqual(new Set(['first', 'second', 'of the parent']))
  const left = (await jobs.list()).jobs.filter(({ state }) => state !== 'completed')
  expect(left.map(({ name, state }) => [name, state])).toEqual([
    ['child', 'delayed'],
    ['other', 'ready'],
  ])
  expect(await jobs.drain({ parent: () => {} })).toEqual({ attempts: 0, failures: [] })
})

test('drain tells of the attempts that failed, and with skipDelays makes all attempts at once', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const handlers = {
    a: ({ payload, attempt }: { payload: unknown; attempt: number }) => {
      if (payload === 'bad') throw new Error(`attempt ${attempt}`)
    },
  }
  const id = (await jobs.enqueue('a', 'bad', { maxAttempts: 3, backoff: '1h' })) ?? ''
  const first = await jobs.drain(handlers)
  expect(first).toMatchObject({ attempts: 1, failures: [{ outcome: 'delayed', job: { id } }] })
  await jobs.enqueue('a', 'good', { delay: '24h' })
  const second = await jobs.drain(handlers, { skipDelays: true, onFailure: undefined })
  expect(second).toMatchObject({ attempts: 3, failures: [{ outcome: 'delayed' }, { outcome: 'dead' }] })
  expect((await jobs.find(id))?.failedAttempts.map(({ error }) => error.split('\n')[0])).toEqual([
    'Error: attempt 1',
    'Error: attempt 2',
    'Error: attempt 3',
  ])
})

test('drain rejects when its jobs are closed, after its handlers have ended', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const other = scene.open()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'elsewhere' }])
  await other.claim('elsewhere')
  let end: (() => void) | undefined
  const done: string[] = []
  const handlers = {
    a: async () => {
      await new Promise<void>((resolve) => {
        end = resolve
      })
      done.push('a')
    },
    elsewhere: () => {},
  }
  const draining = jobs.drain(handlers).catch((error: unknown) => {
    done.push('drained')
    return error
  })
  await until('it works', () => end !== undefined)
  const closing = jobs.close().then(() => done.push('closed'))
  end?.()
  expect(await draining).toMatchObject({ code: 'closed' })
  await closing
  expect(done[0]).toBe('a')
  expect((await other.count()).find(({ name }) => name === 'a')).toMatchObject({ state: 'completed' })
})

test('drain waits for jobs of its names that another worker runs, and does not wait for a group that another name blocks', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'elsewhere', group: 'g' },
    { name: 'a', group: 'g' },
  ])
  const [running] = await jobs.claim('elsewhere')
  expect(await jobs.drain({ a: () => {} })).toMatchObject({ attempts: 0 })
  let isDrained = false
  const draining = jobs.drain({ a: () => {}, elsewhere: () => {} }).then((drained) => {
    isDrained = true
    return drained
  })
  await until('it works', () => scene.sql('select from $schema.jobs').then((rows) => rows.length === 2))
  expect(isDrained).toBe(false)
  await running?.complete()
  expect(await draining).toMatchObject({ attempts: 1 })
})

test('drain refuses what work refuses, and an option that is none', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await expect(jobs.drain({})).rejects.toMatchObject({ code: 'invalid-argument' })
  await expect(jobs.drain({ a: () => {} }, { skipDelays: 1 as never })).rejects.toThrow('skipDelays')
  await expect(jobs.drain({ a: () => {} }, { concurency: 1 } as never)).rejects.toThrow('concurency')
})
