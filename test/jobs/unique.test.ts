import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** A job alone goes another way than jobs in a list. */
describe.each(['enqueue', 'enqueueAll'] as const)('with %s', (how) => {
  async function open() {
    const scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const add = async (payload: unknown, options: object): Promise<string | null> => {
      if (how === 'enqueue') return jobs.enqueue('a', payload, { key: 'k', ...options })
      const [, id = null] = await jobs.enqueueAll([
        { name: 'b', payload: 'beside it' },
        { name: 'a', payload, key: 'k', ...options },
      ])
      return id
    }
    return { scene, jobs, add }
  }

  test('unique while waiting: a job that runs leaves its key to the next one', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    expect(await add(1, {})).not.toBeNull()
    expect(await add(2, {})).toBeNull()
    await jobs.claim('a')
    expect(await add(3, { uniqueFor: 'waiting' })).not.toBeNull()
  })

  test('unique while running: the key is free when the job has ended, and a failed one is never superseded', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    const rules = { uniqueFor: 'running', backoff: 1 }
    const id = await add(1, rules)
    const [first] = await jobs.claim('a')
    expect(await add(2, rules)).toBeNull()
    expect(await add(2, {})).toBeNull()
    expect(await first?.fail(new Error('x'))).toBe('delayed')
    expect(await add(2, rules)).toBeNull()
    const again = await until('it is due again', async () => (await jobs.claim('a'))[0])
    expect(again.id).toBe(id)
    expect(await add(2, rules)).toBeNull()
    await again.complete()
    expect(await add(2, rules)).not.toBeNull()
  })

  test('unique for a period: the key stays taken after the job was completed, and the clean-up does not free it', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    const rules = { uniqueFor: '1h' }
    const quick = scene.open({ keepCompleted: 0 })
    expect(await add(1, rules)).not.toBeNull()
    await quick.drain({ a: () => {} })
    await quick.cleanUp()
    expect(await add(2, rules)).toBeNull()
    await scene.sql(`update $schema.ended_jobs set key_until = now() - interval '1 ms' where name = 'a'`)
    expect(await add(3, rules)).not.toBeNull()
    await quick.cleanUp()
    expect(await scene.sql(`select payload from $schema.ended_jobs where name = 'a'`)).toEqual([])
    await jobs.cancel({ name: 'a' }, { reason: 'not needed' })
    expect(await add(4, rules)).not.toBeNull()
  })

  test('update gives the waiting job the new payload, and a job that runs none', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    const id = await add(1, { delay: '1h' })
    const due = (await jobs.find(id ?? ''))?.dueAt
    expect(await add({ new: 2 }, { ifTaken: 'update' })).toBe(id)
    expect(await jobs.find(id ?? '')).toMatchObject({ payload: { new: 2 }, dueAt: due, state: 'delayed' })
    await jobs.drain({ a: () => {} }, { skipDelays: true })
    const rules = { uniqueFor: 'running', ifTaken: 'update' }
    const running = await add(3, rules)
    const [job] = await jobs.claim('a')
    expect(await add(4, rules)).toBeNull()
    expect((await jobs.find(running ?? ''))?.payload).toBe(3)
    await job?.complete()
  })

  test('postpone is a debounce: the last payload runs, once, after a pause', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    const rules = { delay: '30m', ifTaken: 'postpone' }
    const id = await add(0, rules)
    const first = (await jobs.find(id ?? ''))?.dueAt?.getTime() ?? 0
    for (let n = 1; n <= 5; n += 1) expect(await add(n, rules)).toBe(id)
    const last = await jobs.find(id ?? '')
    expect(last?.dueAt?.getTime()).toBeGreaterThan(first)
    expect(await add('now', { ifTaken: 'postpone' })).toBe(id)
    const seen: unknown[] = []
    const worker = jobs.work({ a: ({ payload }) => seen.push(payload) })
    await until('it has run', () => seen.length > 0)
    expect(seen).toEqual(['now'])
    await worker.stop()
  })

  test('postpone delays a job that waits for its children, too', async () => {
    const { scene, jobs, add } = await open()
    await using _ = scene
    const child = await jobs.enqueue('child', null)
    const id = await add(0, { children: [child] })
    expect(await jobs.find(id ?? '')).toMatchObject({ state: 'pending' })
    expect(await add(1, { delay: '30m', ifTaken: 'postpone' })).toBe(id)
    const [claimed] = await jobs.claim('child')
    await claimed?.complete()
    await until('its parent has heard of that, by a claim', async () => {
      expect(await jobs.claim('a')).toEqual([])
      return (await jobs.find(id ?? ''))?.state !== 'pending'
    })
    const later = await jobs.find(id ?? '')
    expect(later).toMatchObject({ state: 'delayed', payload: 1 })
    expect(later?.dueAt?.getTime()).toBeGreaterThan(Date.now() + 20 * 60_000)
    expect(await add(2, { ifTaken: 'postpone' })).toBe(id)
    const [job] = await jobs.claim('a')
    expect(job?.payload).toBe(2)
    await job?.complete()
  })
})

test('of many that enqueue at once one wins, while jobs of the key run and end', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxConnections: 10, keepCompleted: 0 })
  await jobs.migrate()
  let running = 0
  let most = 0
  const ran: unknown[] = []
  const handlers = {
    once: ({ payload }: { payload: unknown }) => {
      ran.push(payload)
    },
    alone: async () => {
      running += 1
      most = Math.max(most, running)
      await new Promise(setImmediate)
      running -= 1
    },
  }
  jobs.work(handlers, { concurrency: 20 })
  jobs.work(handlers, { concurrency: 20 })
  const ids: (string | null)[] = []
  for (let round = 0; round < 40; round += 1) {
    ids.push(
      ...(await Promise.all(
        Array.from({ length: 10 }, () => jobs.enqueue('once', round, { key: 'k', uniqueFor: '1h' })),
      )),
    )
    await Promise.all(
      Array.from({ length: 10 }, () => jobs.enqueue('alone', round, { key: 'k', uniqueFor: 'running' })),
    )
  }
  await jobs.drain(handlers)
  expect(ids.filter((id) => id !== null)).toHaveLength(1)
  expect(ran).toEqual([0])
  expect(most).toBe(1)
})

test('the last of many payloads is not lost beside claims: it runs after it was given, or with the job that waits', async () => {
  await using scene = await openScene()
  const jobs = scene.open({ maxConnections: 10 })
  await jobs.migrate()
  jobs.work({ a: () => {} })
  for (let n = 1; n <= 300; n += 1)
    expect(await jobs.enqueue('a', n, { key: 'k', ifTaken: 'update' })).not.toBeNull()
  await jobs.drain({ a: () => {} })
  await until('the last one has run', async () => {
    const [row] = await scene.sql('select payload::text from $schema.ended_jobs order by id desc limit 1')
    return row?.['payload'] === '300'
  })
})

test('an answer that is lost leaves one job, also if it is asked again', async () => {
  await using proxied = await openProxied()
  const jobs = proxied.scene.open({}, { url: proxied.url })
  const rules = { key: 'k', uniqueFor: '1h' } as const
  await jobs.enqueue('warm')
  const lost = proxied.proxy.loseNextReply('jobs_enqueue_unique')
  await expect(jobs.enqueue('a', 1, rules)).rejects.toMatchObject({ code: 'store-unavailable' })
  await lost
  expect(await jobs.enqueue('a', 1, rules)).toBeNull()
  expect((await jobs.list({ name: 'a' })).jobs).toHaveLength(1)
})

test('rules of a key without a key, and rules that are none, are refused', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await expect(jobs.enqueue('a', 1, { uniqueFor: '1h' })).rejects.toThrow('`key`')
  await expect(jobs.enqueue('a', 1, { ifTaken: 'update' })).rejects.toThrow('`key`')
  await expect(jobs.enqueue('a', 1, { key: 'k', uniqueFor: 'ever' })).rejects.toThrow('uniqueFor')
  await expect(jobs.enqueue('a', 1, { key: 'k', ifTaken: 'replace' as never })).rejects.toThrow('ifTaken')
})

test.each([
  ['without rules', 200, {}],
  // The jobs are enqueued one by one. PostgreSQL may undo one of the two lists, which is then sent again.
  ['with rules', 2, { ifTaken: 'update' }],
] as const)('lists with the same keys in another order, %s, are both enqueued', async (_, size, rules) => {
  await using scene = await openScene()
  const [one, other] = [scene.open(), scene.open()]
  await one.migrate()
  for (let round = 0; round < 10; round += 1) {
    const list = Array.from({ length: size }, (_, n) => ({ name: 'a', key: `${round} ${n}`, ...rules }))
    await Promise.all([one.enqueueAll(list), other.enqueueAll([...list].reverse())])
  }
  expect(await one.count()).toMatchObject([{ state: 'ready', count: 10 * size }])
})

test('of a key that is twice in a list, the first one is enqueued, and ids are in the order of the list', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll(
    ['z', 'b', 'z', undefined, 'a'].map((key, n) => ({ name: 'a', payload: n, key })),
  )
  expect(ids[2]).toBeNull()
  const given = ids.filter((id) => id !== null).map(Number)
  expect(given).toEqual([...given].sort((x, y) => x - y))
  expect((await jobs.find(ids[0] ?? ''))?.payload).toBe(0)
})
