import { Pool } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createJobs } from '../../src/jobs/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { closeSharedServer, JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const cycle: { self?: unknown } = {}
cycle.self = cycle

test('a value that cannot be enqueued is named in one sentence, and nothing is enqueued', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxPayloadBytes: 100 })
  await jobs.migrate()
  const cases: [unknown[], string][] = [
    [['a', 1n], 'Expected `payload` to be a value that JSON has, got 1n.'],
    [
      ['a', { list: [{}, { n: 1 }], deep: { list: [1, [2, Number.NaN]] } }],
      'Expected `payload.deep.list[1][1]` to be a value that JSON has, got NaN.',
    ],
    [['a', [1, -Infinity]], 'Expected `payload[1]` to be a value that JSON has, got -Infinity.'],
    [['a', { f: () => {} }], 'Expected `payload.f` to be a value that JSON has, got a function.'],
    [['a', [undefined]], 'Expected `payload[0]` to be a value that JSON has, got undefined.'],
    [['a', { sparse: Array(3) }], 'Expected `payload.sparse[0]` to be a value that JSON has, got undefined.'],
    [['a', { at: new Date('x') }], 'Expected `payload.at` to be a value that JSON has, got an invalid Date.'],
    [
      ['a', { a: [new Set([1])] }],
      'Expected `payload.a[0]` to be a value that JSON has, got an object (Set).',
    ],
    [
      ['a', { e: new Error('x') }],
      'Expected `payload.e` to be a value that JSON has, got an object (Error).',
    ],
    [['a', Promise.resolve(1)], 'Expected `payload` to be a value that JSON has, got an object (Promise).'],
    [
      ['a', { b: new Uint8Array(1) }],
      'Expected `payload.b` to be a value that JSON has, got an object (Uint8',
    ],
    [
      ['a', new Number(Number.NaN)],
      'Expected `payload` to be a value that JSON has, got an object (Number).',
    ],
    [['a', new Map()], 'Expected `payload` to be a value that JSON has, got an object (Map).'],
    [
      ['a', cycle],
      'Expected `payload` to be JSON, got an object (Object): Converting circular structure to JSON.',
    ],
    [
      ['a', 'é'.repeat(60)],
      'Expected `payload` to be at most 100 bytes of JSON (`maxPayloadBytes`), got 122. Store',
    ],
    [['', 1], 'Expected `name` to be a text of 1 to 500 bytes (UTF-8) without U+0000, got "".'],
    [['a', 1, { delay: -1 }], 'Expected `delay` to be a duration from 0 ms'],
    [['a', 1, { runAt: new Date('x') }], 'Expected `runAt` to be a valid Date'],
    [['a', 1, { delay: 1, runAt: new Date() }], 'Expected `runAt` to be left out beside `delay`'],
    [['a', 1, { priority: 0.5 }], 'Expected `priority` to be a whole number from -32768 to 32767, got 0.5.'],
    [['a', 1, { maxAttempts: 0 }], 'Expected `maxAttempts` to be a whole number from 1 to 1000, got 0.'],
    [
      ['a', 1, { group: 'g', groupLimit: 0 }],
      'Expected `groupLimit` to be a whole number from 1 to 1000, got 0.',
    ],
    [['a', 1, { groupLimit: 2 }], 'Expected `group` to be given beside `groupLimit`'],
    [['a', 1, { children: ['7', 'x'] }], 'Expected `children` to be the id of a job, got "x".'],
    [['a', 1, { children: ['7', undefined] }], 'Expected `children` to be the id of a job, got undefined.'],
    [['a', 1, { children: '7' }], 'Expected `children` to be an array of up to 1000 ids of jobs, got "7".'],
    [['a', 1, { ifChildFails: 'run' }], 'Expected `children` to be given beside `ifChildFails`'],
    [['a', 1, { children: ['7'], ifChildFails: 'no' }], 'Expected `ifChildFails` to be one of cancel, run'],
    [['a', 1, { children: ['7'], key: 'k', ifTaken: 'update' }], 'Expected `ifTaken` to be left out'],
    [['a', 1, { key: 'zero\0' }], 'Expected `key` to be a text of 1 to 500 bytes (UTF-8) without U+0000'],
    [['a', 1, { key: '鍵'.repeat(200) }], 'Expected `key` to be a text of 1 to 500 bytes (UTF-8)'],
    [['a', 1, { runAt: new Date(8e15) }], 'Expected `runAt` to be a valid Date of the years 1 to 9999'],
    [['a', 1, { runAt: new Date('0000-06-01') }], 'Expected `runAt` to be a valid Date of the years 1'],
    [['a', { toJSON: () => undefined }], 'Expected `payload` to be JSON, got an object (Object), whose'],
    [['a', 1, { delayed: 5 }], 'Expected the options to be among `priority`, `delay`'],
    [['a', 1, { name: 'b' }], 'Expected the options to be among `priority`, `delay`'],
    [['a', 1, { payload: 2 }], 'Expected the options to be among `priority`, `delay`'],
    [['a', 1, null], 'Expected the options to be an object, got null.'],
    [['a', 1, { transaction: 5 }], 'Expected `transaction` to be a client of pg, postgres'],
  ]
  for (const [given, message] of cases) {
    const answer = jobs.enqueue(...(given as Parameters<typeof jobs.enqueue>))
    await expect(answer).rejects.toMatchObject({ code: 'invalid-argument' })
    await expect(answer).rejects.toThrow(message)
  }
  await expect(jobs.claim(undefined as never)).rejects.toThrow('Expected `names` to be a text of 1 to')
  await expect(
    jobs
      .inspect({ name: 42 as never })
      [Symbol.asyncIterator]()
      .next(),
  ).rejects.toThrow('Expected `name` to be a text')
  const list = [{ name: 'a' }, { name: 'a', payload: 1n }]
  await expect(jobs.enqueueAll(list)).rejects.toMatchObject({ code: 'invalid-argument' })
  await expect(jobs.enqueueAll(list)).rejects.toThrow(
    'Expected `jobs[1].payload` to be a value that JSON has',
  )
  await expect(jobs.enqueueAll(new Array(2))).rejects.toThrow('Expected `jobs[0]` to be an object')
  const window = Number.POSITIVE_INFINITY
  const limited = jobs.setLimit('a', { rate: { points: 5, window } })
  await expect(limited).rejects.toMatchObject({ code: 'invalid-argument' })
  expect(await jobs.count()).toEqual([])
  expect(await jobs.enqueueAll([])).toEqual([])
})

test('a value that JSON writes without a loss that matters is kept, and comes back as JSON reads it', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const shared = { n: 1 }
  class Order {
    readonly id = 7
  }
  const payload = {
    left: undefined,
    at: new Date(0),
    twice: [shared, shared],
    order: new Order(),
    bare: Object.assign(Object.create(null), { x: null }),
    url: new URL('http://localhost/'),
    text: '\0\ud800',
  }
  await jobs.enqueue('a', payload)
  await jobs.enqueue('a')
  const [first, second] = await jobs.claim('a', { limit: 2 })
  expect(first?.payload).toStrictEqual({
    at: '1970-01-01T00:00:00.000Z',
    twice: [{ n: 1 }, { n: 1 }],
    order: { id: 7 },
    bare: { x: null },
    url: 'http://localhost/',
    text: '\0\ud800',
  })
  expect(second?.payload).toBe(null)
})

test('a client or pool that is not in a transaction is refused before anything is enqueued or completed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a')
  const [job] = await jobs.claim('a')
  const client = await scene.connect()
  for (const transaction of [
    scene.pool,
    client,
    { query: (text: string, values: unknown) => client.query(text, values as unknown[]) },
  ]) {
    const words = 'Expected `transaction` to be inside a transaction'
    await expect(jobs.enqueue('b', 1, { transaction: transaction as never })).rejects.toThrow(words)
    await expect(job?.complete({ transaction: transaction as never })).rejects.toThrow(words)
  }
  expect(await jobs.count()).toMatchObject([{ name: 'a', state: 'running', count: 1 }])
})

test('a transaction that is already aborted is named as such', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const client = await scene.connect()
  await client.query('begin')
  await expect(client.query('select 1 / 0')).rejects.toThrow()
  const enqueued = jobs.enqueue('b', 1, { transaction: client })
  await expect(enqueued).rejects.toMatchObject({ code: 'store-refused' })
  await expect(enqueued).rejects.toThrow('already aborted by an earlier error')
  await client.query('rollback')
})

test('options of workers and claims are checked', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  const work = (handlers: unknown, options: unknown) => () => jobs.work(handlers as never, options as never)
  expect(work(5, {})).toThrow('Expected `handlers` to be an object')
  expect(work({}, {})).toThrow('at least one function')
  expect(work({ a: 5 }, {})).toThrow('Expected `handlers.a` to be a function, got 5.')
  expect(work({ a() {} }, { concurrency: 0 })).toThrow(
    'Expected `concurrency` to be a whole number from 1 to 1000, got 0.',
  )
  expect(work({ a() {} }, { ttl: 5 })).toThrow('Expected `ttl` to be a duration from 50 ms')
  expect(work({ a() {} }, { maxRun: -1 })).toThrow('Expected `maxRun` to be a duration from 1 ms')
  expect(work({ a() {} }, { pollInterval: 0 })).toThrow('Expected `pollInterval`')
  expect(work({ a() {} }, { onError: 1 })).toThrow('Expected `onError` to be a function, got 1.')
  expect(work({ a() {} }, { concurency: 1 })).toThrow('got `concurency`')
  await expect(jobs.claim('a', { limit: 1001 })).rejects.toThrow('Expected `limit`')
  await expect(jobs.find('x')).rejects.toThrow('Expected `id` to be the id of a job, got "x".')
  await expect(jobs.cancel('1', {} as never)).rejects.toThrow('Expected `reason`')
  await expect(jobs.remove({})).rejects.toThrow(
    'Expected `selection` to be ids, or a filter with at least one property, got',
  )
  await expect(jobs.retry({ state: undefined })).rejects.toThrow('Expected `selection`')
  await expect(jobs.remove({ nam: 'a' } as never)).rejects.toThrow('got `nam`')
  await expect(jobs.retry('x')).rejects.toThrow('Expected `ids` to be the id of a job, got "x".')
  const none = [undefined] as never
  for (const hole of [none, new Array(1) as never]) {
    await expect(jobs.cancel(hole, { reason: 'r' })).rejects.toThrow(
      'Expected `ids` to be the id of a job, got un',
    )
    await expect(jobs.list({ id: hole })).rejects.toThrow(
      'Expected `id` to be the id of a job, got undefined.',
    )
    await expect(jobs.list({ state: hole })).rejects.toThrow('Expected `state` to be one of')
    await expect(jobs.claim(hole)).rejects.toThrow('Expected `names` to be a text')
  }
  await expect(jobs.find(undefined as never)).rejects.toMatchObject({ code: 'invalid-argument' })
  await expect(jobs.waitFor(undefined as never)).rejects.toMatchObject({ code: 'invalid-argument' })
  await expect(jobs.list({ limit: 1001 })).rejects.toThrow('Expected `limit`')
  await expect(jobs.list({ after: '' })).rejects.toThrow('Expected `after` to be the id of a job')
  await expect(jobs.list({ since: '2026' as never })).rejects.toThrow('Expected `since` to be a valid Date')
  await expect(jobs.countOverTime({ span: '24h', step: '1s' })).rejects.toThrow(
    'Expected `span` to be at most 1000 times `step`, got "24h".',
  )
  for (const each of ['span', 'step'])
    await expect(jobs.countOverTime({ [each]: Number.POSITIVE_INFINITY })).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(`Expected \`${each}\` to be a duration`),
    })
  await expect(
    jobs
      .inspect({ state: 'late' as never })
      [Symbol.asyncIterator]()
      .next(),
  ).rejects.toThrow('Expected `state`')
  expect(() => createJobs({} as never)).toThrow('Expected `client` to be a `Pool` or `Client`')
  expect(() => createJobs(scene.pool, { schema: 'pg_x' })).toThrow('Expected `schema`')
  expect(() => createJobs(scene.pool, { keepCompleted: -1 })).toThrow('Expected `keepCompleted`')
})

test('without tables, without rights, and on a standby the error says what to do', async () => {
  await using server = await startPostgres()
  await using scene = new JobsScene(server)
  const jobs = scene.open()
  await expect(jobs.enqueue('a')).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('migrate()'),
  })
  await jobs.migrate()
  await server.sql('create role stranger login')
  const stranger = new Pool({ connectionString: server.url.replace('holdfast@', 'stranger@') })
  const refused = createJobs(stranger, { schema: scene.schema })
  await expect(refused.enqueue('a')).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('may not'),
  })
  await expect(createJobs(stranger, { schema: 'own' }).migrate()).rejects.toMatchObject({
    code: 'store-refused',
  })
  await stranger.end()
  await using standby = await startPostgres({ standbyOf: server })
  const onStandby = scene.open({}, { url: standby.url })
  const readOnly = { code: 'store-unavailable', message: expect.stringContaining('read-only') }
  await expect(onStandby.enqueue('a')).rejects.toMatchObject(readOnly)
  await expect(onStandby.claim('a')).rejects.toMatchObject(readOnly)
})

test('a role with the rights of the page works, without the right to create anything', async () => {
  await using scene = await openScene()
  await scene.open().migrate()
  await scene.server.sql(`
    create role worker login;
    grant usage on schema ${scene.schema} to worker;
    grant select, insert, update, delete on ${scene.schema}.jobs, ${scene.schema}.ended_jobs, ${scene.schema}.job_limits, ${scene.schema}.job_children to worker;
    grant usage on sequence ${scene.schema}.job_ids to worker`)
  const jobs = scene.open({}, { url: scene.server.url.replace('holdfast@', 'worker@') })
  await jobs.migrate()
  await jobs.enqueue('a', 1, { group: 'g', key: 'k' })
  const [job] = await jobs.claim('a')
  await job?.complete()
  await jobs.cleanUp()
  expect(await jobs.count()).toMatchObject([{ state: 'completed' }])
})
