import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Jobs } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

async function openJobs(): Promise<{ scene: JobsScene; jobs: Jobs } & AsyncDisposable> {
  const scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  return { scene, jobs, [Symbol.asyncDispose]: () => scene[Symbol.asyncDispose]() }
}

async function enqueued(
  jobs: Jobs,
  name: string,
  options: Parameters<Jobs['enqueue']>[2] = {},
): Promise<string> {
  const id = await jobs.enqueue(name, name, options)
  if (id === null) throw new Error(`${name} was not enqueued`)
  return id
}

const stateOf = async (jobs: Jobs, id: string) => (await jobs.find(id))?.state

test('a job runs after all its children, and reads their results in the order that was given', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const order: string[] = []
  const client = await scene.connect()
  await client.query('begin')
  const parts = await jobs.enqueueAll(
    [3, 1, 2].map((part) => ({ name: 'part', payload: part })),
    { transaction: client },
  )
  const children = parts.flatMap((id) => id ?? []).reverse()
  const id = await jobs.enqueue('whole', null, { children, transaction: client })
  await client.query('commit')
  expect(await jobs.find(id ?? '')).toMatchObject({ state: 'pending', children })
  expect(await jobs.claim('whole')).toEqual([])
  const results: unknown[] = []
  const whole = jobs.work({
    whole: async (job) => {
      order.push('whole')
      results.push((await job.children()).map((child) => [child.id, child.state, child.result]))
      return 'put together'
    },
  })
  scene.open().work({
    part: async ({ payload }) => {
      await new Promise((resolve) => setTimeout(resolve, 20 * Number(payload)))
      order.push(`part ${payload}`)
      return Number(payload) * 10
    },
  })
  expect(await jobs.waitFor(id ?? '', { signal: AbortSignal.timeout(20_000) })).toMatchObject({
    state: 'completed',
    result: 'put together',
  })
  expect(order).toEqual(['part 1', 'part 2', 'part 3', 'whole'])
  expect(results).toEqual([
    [
      [children[0], 'completed', 20],
      [children[1], 'completed', 10],
      [children[2], 'completed', 30],
    ],
  ])
  await whole.stop()
  expect(await scene.sql('select * from $schema.job_children')).toEqual([])
})

test('children that have ended before count, and a job whose children are all done is ready at once', async () => {
  await using opened = await openJobs()
  const { jobs } = opened
  const child = await enqueued(jobs, 'a')
  const [claimed] = await jobs.claim('a')
  await claimed?.complete({ result: 1 })
  const parent = await enqueued(jobs, 'b', { children: [child] })
  expect(await stateOf(jobs, parent)).toBe('ready')
  const [running] = await jobs.claim('b')
  expect((await running?.children())?.map(({ result }) => result)).toEqual([1])
  const [none] = [await enqueued(jobs, 'c', { children: [] })]
  expect(await stateOf(jobs, none)).toBe('ready')
})

test('a child that is not there is refused, in a list and in a transaction, too', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'a')
  const refused = {
    code: 'invalid-argument',
    message: 'Expected `children` to be ids of jobs that are there, got "999999".',
  }
  await expect(jobs.enqueue('b', 1, { children: [child, '999999'] })).rejects.toMatchObject(refused)
  const many = Array.from({ length: 5001 }, () => ({ name: 'b' }))
  await expect(jobs.enqueueAll([...many, { name: 'b', children: ['999999'] }])).rejects.toMatchObject(refused)
  const client = await scene.connect()
  await client.query('begin')
  await expect(jobs.enqueue('b', 1, { children: ['999999'], transaction: client })).rejects.toMatchObject(
    refused,
  )
  await client.query('rollback')
  await expect(scene.sql(`select $schema.enqueue('b', '1', '{"children": [999999]}')`)).rejects.toMatchObject(
    {
      code: '22023',
      message: refused.message,
    },
  )
  expect(await jobs.count()).toMatchObject([{ name: 'a', count: 1 }])
})

test('if a child is dead, its parent is cancelled, with the reason, and so are the parents of that one', async () => {
  await using opened = await openJobs()
  const { jobs } = opened
  const child = await enqueued(jobs, 'child', { maxAttempts: 1 })
  const other = await enqueued(jobs, 'other')
  const parent = await enqueued(jobs, 'parent', { children: [child, other], key: 'k' })
  const top = await enqueued(jobs, 'top', { children: [parent] })
  const [claimed] = await jobs.claim('child')
  await claimed?.fail('x')
  await until('both are cancelled', async () => {
    await jobs.claim('nothing')
    return (await stateOf(jobs, top)) === 'cancelled'
  })
  expect(await jobs.find(parent)).toMatchObject({
    state: 'cancelled',
    error: `Its child ${child} (child) is dead.`,
  })
  expect((await jobs.find(top))?.error).toBe(`Its child ${parent} (parent) is cancelled.`)
  expect(await stateOf(jobs, other)).toBe('ready')
  // By a filter, newest first, and yet children before their parents.
  expect([...(await jobs.retry({ id: [child, parent, top] }))].sort()).toEqual([child, parent, top].sort())
  for (const name of ['child', 'other', 'parent', 'top']) {
    const [next] = await jobs.claim(name)
    await next?.complete()
  }
  expect(await Promise.all([child, other, parent, top].map((id) => stateOf(jobs, id)))).toEqual(
    Array(4).fill('completed'),
  )
})

test('a job may run although a child failed, or wait until somebody has retried it', async () => {
  await using opened = await openJobs()
  const { jobs } = opened
  const child = await enqueued(jobs, 'child', { maxAttempts: 1 })
  const runs = await enqueued(jobs, 'runs', { children: [child], ifChildFails: 'run' })
  const waits = await enqueued(jobs, 'waits', { children: [child], ifChildFails: 'wait' })
  const [first] = await jobs.claim('child')
  await first?.fail('x')
  const [running] = await jobs.claim('runs')
  expect(running?.id).toBe(runs)
  expect((await running?.children())?.map(({ state }) => state)).toEqual(['dead'])
  await running?.complete()
  expect(await jobs.claim('waits')).toEqual([])
  // It is needed, so it cannot be removed.
  expect(await jobs.remove(child)).toEqual([])
  await jobs.retry(child)
  const [again] = await jobs.claim('child')
  await again?.complete()
  const [waiting] = await jobs.claim('waits')
  expect(waiting?.id).toBe(waits)
  await waiting?.complete()
  expect(await jobs.remove(child)).toEqual([child])
  // Such a parent that comes after the failure is treated alike.
  const late = await enqueued(jobs, 'child', { maxAttempts: 1 })
  const [last] = await jobs.claim('child')
  await last?.fail('x')
  const after = await Promise.all(
    (['cancel', 'run', 'wait'] as const).map((ifChildFails) =>
      enqueued(jobs, 'after', { children: [late], ifChildFails }),
    ),
  )
  await jobs.claim('nothing')
  expect(await Promise.all(after.map((id) => stateOf(jobs, id)))).toEqual(['cancelled', 'ready', 'pending'])
})

test('children are kept for their parent, and go with the others when it has ended', async () => {
  await using opened = await openJobs()
  const { scene } = opened
  const jobs = scene.open({ keepCompleted: 0 })
  const child = await enqueued(jobs, 'child')
  const parent = await enqueued(jobs, 'parent', { children: [child], delay: 100 })
  const [claimed] = await jobs.claim('child')
  await claimed?.complete({ result: 'kept' })
  await jobs.cleanUp()
  const [running] = await until('it is due', async () => {
    const found = await jobs.claim('parent')
    return found.length > 0 && found
  })
  expect((await running?.children())?.map(({ result }) => result)).toEqual(['kept'])
  await running?.complete()
  await jobs.cleanUp()
  expect([await jobs.find(child), await jobs.find(parent)]).toEqual([null, null])
  expect(await scene.sql('select * from $schema.job_children')).toEqual([])
})

test('a worker of the parent that does not poll begins when a child completes in a transaction elsewhere', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  await enqueued(jobs, 'parent', { children: [child] })
  const ran: string[] = []
  jobs.work({ parent: ({ name }) => ran.push(name) }, { pollInterval: '1h' })
  await until('the worker listens', async () => {
    const [row] = await scene.sql(
      `select count(*)::int as listening from pg_stat_activity where query ilike 'listen%holdfast_jobs%'`,
    )
    return Number(row?.['listening']) > 0
  })
  const [claimed] = await scene.open().claim('child')
  const client = await scene.connect()
  await client.query('begin')
  await claimed?.complete({ transaction: client })
  await client.query('commit')
  await until('it has run', () => ran.length === 1)
})

test('two claims that tell a parent of two children at once do not leave it waiting', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const others = Array.from({ length: 6 }, () => scene.open())
  for (let round = 0; round < 20; round += 1) {
    const children = await Promise.all(others.map(() => enqueued(jobs, 'child')))
    await enqueued(jobs, 'parent', { children })
    await Promise.all(
      others.map(async (each) => {
        const claimed = await until('it has a child', async () => (await each.claim('child'))[0])
        await claimed.complete()
        await each.claim('nothing')
      }),
    )
  }
  // One of two claims that meet at a parent leaves it for a second, so the parents of all rounds are waited for together.
  const ready = new Set<string>()
  await until('all are ready', async () => {
    for (const parent of await jobs.claim('parent', { limit: 20 })) ready.add(parent.id)
    return ready.size === 20
  })
})

test('a transaction that has changed a parent and stays open holds up that one, and no other', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const [one, two] = [await enqueued(jobs, 'child'), await enqueued(jobs, 'child')]
  await enqueued(jobs, 'held', { children: [one], key: 'k' })
  await enqueued(jobs, 'free', { children: [two] })
  const client = await scene.connect()
  await client.query('begin')
  await jobs.enqueue('held', 'new', { key: 'k', ifTaken: 'update', transaction: client })
  for (const job of await jobs.claim('child', { limit: 2 })) await job.complete()
  expect(await jobs.claim(['held', 'free'], { limit: 2 })).toMatchObject([{ name: 'free' }])
  await client.query('commit')
  await until('it is told after a second', async () => (await jobs.claim('held')).length > 0)
})

test('while the transaction that enqueues a parent is open, its child keeps its lease, and ends after it', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  let end: (() => void) | undefined
  const errors: unknown[] = []
  scene.open().work(
    {
      child: () =>
        new Promise<void>((resolve) => {
          end = resolve
        }),
      parent: () => {},
    },
    { ttl: '9s', onError: (error) => errors.push(error), onFailure: (failure) => errors.push(failure) },
  )
  await until('the child runs', () => end !== undefined)
  const client = await scene.connect()
  await client.query('begin')
  const parent = await jobs.enqueue('parent', null, { children: [child], transaction: client })
  const enqueuedAt = Date.now()
  await until('it has had its lease for twice the ttl', async () => {
    expect(errors).toEqual([])
    const found = await jobs.find(child)
    expect(found).toMatchObject({ state: 'running', attempt: 1 })
    return (found?.dueAt?.getTime() ?? 0) > enqueuedAt + 18_000
  })
  end?.()
  await expect(jobs.cancel([child], { reason: 'too late' })).rejects.toMatchObject({
    code: 'store-unavailable',
  })
  expect(await stateOf(jobs, child)).toBe('running')
  await client.query('commit')
  await until('the parent is through', async () => (await stateOf(jobs, parent ?? '')) === 'completed')
  expect(await jobs.find(child)).toMatchObject({ state: 'completed', attempt: 1, failures: 0 })
})

test('a child that ends just when its parent is committed leaves no parent waiting', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ keepCompleted: 0 })
  await jobs.migrate()
  const client = await scene.connect()
  for (let n = 0; n < 100; n += 1) {
    const child = await enqueued(jobs, 'child')
    await client.query('begin')
    const parent = await jobs.enqueue('parent', null, { children: [child], transaction: client })
    // It begins while the transaction is open.
    const [running] = await jobs.claim('child')
    expect(running?.id).toBe(child)
    await Promise.all([client.query('commit'), running?.complete()])
    const [ready] = await jobs.claim('parent')
    expect(ready?.id).toBe(parent)
    await ready?.complete()
  }
})

test('a transaction that cannot see a parent tells it of the child that it has completed', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  const [running] = await jobs.claim('child')
  const client = await scene.connect()
  await client.query('begin isolation level repeatable read')
  await client.query(`select from ${scene.schema}.jobs`)
  const parent = await enqueued(jobs, 'parent', { children: [child] })
  await running?.complete({ transaction: client })
  await client.query('commit')
  expect(await jobs.claim('parent')).toMatchObject([{ id: parent }])
})

test('a parent whose child an open transaction has locked is not retried, all others are, and nothing waits for it', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  const parent = await enqueued(jobs, 'parent', { children: [child] })
  const other = await enqueued(jobs, 'other')
  await jobs.cancel([parent, other], { reason: 'x' })
  const [running] = await jobs.claim('child')
  const client = await scene.connect()
  await client.query('begin')
  await running?.complete({ transaction: client })
  await expect(jobs.retry([parent, other])).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringContaining(`locked 1 of the jobs (${parent})`),
  })
  expect(await stateOf(jobs, other)).toBe('ready')
  await client.query('rollback')
  expect(await jobs.retry(parent)).toEqual([parent])
  expect(await stateOf(jobs, parent)).toBe('pending')
})

test('of thousands of jobs, too, children are retried before their parents', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  await jobs.enqueueAll(Array.from({ length: 3500 }, () => ({ name: 'between' })))
  const parent = await enqueued(jobs, 'parent', { children: [child] })
  await jobs.cancel({ name: ['child', 'between'] }, { reason: 'x' })
  await until('its parent is cancelled', async () => {
    await jobs.claim('nothing')
    return (await stateOf(jobs, parent)) === 'cancelled'
  })
  let isRetrying = true
  const others = scene.open()
  const claims = (async () => {
    while (isRetrying) await others.claim('nothing')
  })()
  const retried = await jobs.retry({ state: 'cancelled' })
  isRetrying = false
  await claims
  expect(retried).toHaveLength(3502)
  expect(await stateOf(jobs, parent)).toBe('pending')
  const [running] = await jobs.claim('child')
  await running?.complete()
  expect(await jobs.claim('parent')).toMatchObject([{ id: parent }])
})

test('a child that thousands of jobs wait for tells them in small steps', async () => {
  await using opened = await openJobs()
  const { jobs, scene } = opened
  const child = await enqueued(jobs, 'child')
  await jobs.enqueueAll(Array.from({ length: 2500 }, () => ({ name: 'parent', children: [child] })))
  const ready = async () => {
    const [row] = await scene.sql(`select count(*)::int as ready from $schema.jobs where state = 'ready'`)
    return row?.['ready']
  }
  const [claimed] = await jobs.claim('child')
  await claimed?.complete()
  const steps: unknown[] = []
  for (let claim = 0; claim < 4; claim += 1) {
    await jobs.claim('nothing')
    steps.push(await ready())
  }
  expect(steps).toEqual([1000, 2000, 2500, 2500])
  expect(await scene.sql('select 1 from $schema.ended_jobs where tell_at is not null')).toEqual([])
})

test('`drain` runs children and parents, and parents of parents', async () => {
  await using opened = await openJobs()
  const { jobs } = opened
  const ran: string[] = []
  const handlers = Object.fromEntries(['a', 'b', 'c'].map((name) => [name, () => ran.push(name)]))
  for (let round = 0; round < 5; round += 1) {
    const a = await enqueued(jobs, 'a')
    const b = await enqueued(jobs, 'b', { children: [a] })
    await enqueued(jobs, 'c', { children: [b, a] })
    await jobs.drain(handlers)
  }
  expect(ran.join('')).toBe('abc'.repeat(5))
})
