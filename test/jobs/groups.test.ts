import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('jobs of one group run one at a time and in order, with many workers that claim at once', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const groups = 5
  const each = 60
  const every = Array.from({ length: groups * each }, (_, n) => ({
    name: n % 3 === 0 ? 'a' : 'b',
    payload: { group: n % groups, turn: Math.floor(n / groups) },
    group: `account:${n % groups}`,
  }))
  await jobs.enqueueAll([...every, ...Array.from({ length: 100 }, () => ({ name: 'a', payload: null }))])
  const inside = new Set<number>()
  const turns = new Map<number, number[]>()
  let overlaps = 0
  let free = 0
  const handle = async ({ payload }: { payload: unknown }): Promise<void> => {
    if (payload === null) {
      free += 1
      return
    }
    const { group, turn } = payload as { group: number; turn: number }
    if (inside.has(group)) overlaps += 1
    inside.add(group)
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 3))
    inside.delete(group)
    turns.set(group, [...(turns.get(group) ?? []), turn])
  }
  // Each worker has connections of its own, so that their claims truly meet in the database.
  for (let n = 0; n < 8; n += 1) scene.open().work({ a: handle, b: handle }, { concurrency: 5 })
  await until(
    'all are done',
    async () => (await jobs.count()).every(({ state }) => state === 'completed') && free === 100,
    { everyMs: 50 },
  )
  expect(overlaps).toBe(0)
  const inOrder = Array.from({ length: each }, (_, turn) => turn)
  expect([...turns.values()]).toEqual(Array.from({ length: groups }, () => inOrder))
})

test('the database itself refuses a second running job of a group', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'a', group: 'g' },
    { name: 'a', group: 'g' },
  ])
  expect(await jobs.claim('a', { limit: 5 })).toHaveLength(1)
  await expect(
    scene.sql(`update $schema.jobs set state = 'running', due_at = now() where state <> 'running'`),
  ).rejects.toThrow('jobs_group_running')
})

test('several jobs of a group run at once, and never more than its limit, with many workers that claim at once', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(
    Array.from({ length: 200 }, (_, n) => ({
      name: 'a',
      payload: n,
      group: `customer:${n % 2}`,
      groupLimit: n % 2 === 0 ? 3 : 5,
    })),
  )
  const inside = new Map<string | null, number>()
  const most = new Map<string | null, number>()
  const handle = async ({ group }: { group: string | null }): Promise<void> => {
    const running = (inside.get(group) ?? 0) + 1
    inside.set(group, running)
    most.set(group, Math.max(most.get(group) ?? 0, running))
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 5))
    inside.set(group, (inside.get(group) ?? 0) - 1)
  }
  for (let n = 0; n < 6; n += 1) scene.open().work({ a: handle }, { concurrency: 5 })
  await until('all are done', async () => (await jobs.count()).every(({ state }) => state === 'completed'), {
    everyMs: 50,
  })
  // A job that was claimed ahead counts, too. So chance decides whether as many as the limit run at once.
  expect([2, 3]).toContain(most.get('customer:0'))
  expect([2, 3, 4, 5]).toContain(most.get('customer:1'))
})

test('one claim takes the first jobs of a group up to its limit, and each job that ends lets the next one start', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(
    Array.from({ length: 6 }, (_, n) => ({ name: 'a', payload: n, group: 'g', groupLimit: 3 })),
  )
  await jobs.enqueue('a', 'free')
  const first = await jobs.claim('a', { limit: 10 })
  expect(first.map(({ payload }) => payload)).toEqual([0, 1, 2, 'free'])
  expect(await jobs.claim('a', { limit: 10 })).toEqual([])
  await first[1]?.complete()
  const second = await jobs.claim('a', { limit: 10 })
  expect(second.map(({ payload }) => payload)).toEqual([3])
  await Promise.all([first[0]?.complete(), first[2]?.giveBack(), second[0]?.complete()])
  const third = await jobs.claim('a', { limit: 10 })
  expect(third.map(({ payload }) => payload)).toEqual([2, 4, 5])
  expect(await jobs.find(third[0]?.id ?? '')).toMatchObject({ group: 'g', groupLimit: 3 })
})

test('if the jobs of a group have different limits, the smallest one counts', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const limits = [3, 3, 1, 3, 2, 2]
  await jobs.enqueueAll(limits.map((groupLimit, n) => ({ name: 'a', payload: n, group: 'g', groupLimit })))
  const claim = async () => {
    const claimed = await jobs.claim('a', { limit: 10 })
    return { claimed, numbers: claimed.map(({ payload }) => payload) }
  }
  const { claimed, numbers } = await claim()
  expect(numbers).toEqual([0, 1])
  await claimed[0]?.complete()
  expect((await claim()).numbers).toEqual([])
  await claimed[1]?.complete()
  const alone = await claim()
  expect(alone.numbers).toEqual([2])
  await alone.claimed[0]?.complete()
  expect((await claim()).numbers).toEqual([3, 4])
})

test('a worker that ends the running job of a group lets the next one start', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const one = { name: 'a', group: 'g', backoff: '1h' }
  const ids = await jobs.enqueueAll([one, one, one, one, one, one])
  const next = () => jobs.claim('a', { limit: 5 })
  const [first] = await next()
  await first?.complete()
  const [second] = await next()
  await second?.fail('x')
  const [third] = await next()
  await jobs.cancel(third?.id ?? '', { reason: 'x' })
  const [fourth] = await next()
  // As if its worker had died long ago. A claim with a short ttl is refused if its answer comes later than that.
  await scene.sql(`update $schema.jobs set due_at = clock_timestamp() where state = 'running'`)
  await until(
    'the lease is over',
    async () =>
      (await jobs.claim('nothing')).length === 0 && (await jobs.find(fourth?.id ?? ''))?.state === 'delayed',
  )
  const [fifth] = await next()
  await fifth?.giveBack()
  const [again] = await next()
  await again?.complete()
  const [sixth] = await next()
  expect([first, second, third, fourth, fifth, again, sixth].map((job) => job?.id)).toEqual([
    ...ids.slice(0, 5),
    ids[4],
    ids[5],
  ])
})

test('ten thousand jobs of a busy group hold up no other job, nor does a claim read them twice', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 10_000 }, () => ({ name: 'a', group: 'busy' })))
  await jobs.enqueue('a', 'other')
  const [holder] = await jobs.claim('a')
  const done: unknown[] = []
  const worker = scene.open().work({ a: ({ payload }) => done.push(payload) }, { concurrency: 50 })
  await until('the other one is done', () => done.length > 0)
  expect(done).toEqual(['other'])
  await until('no claim reads them any more', async () =>
    (await jobs.count()).some(({ state, count }) => state === 'blocked' && count === 9999),
  )
  await worker.stop()
  await holder?.complete()
  expect(await jobs.claim('a', { limit: 5 })).toHaveLength(1)
})

test('one claim passes over thousands of jobs of busy groups, and takes what stands behind them', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a', 'runs', { group: 'one' })
  const [holder] = await jobs.claim('a')
  const of = (group: string) => Array.from({ length: 2500 }, (_, n) => ({ name: 'a', payload: n, group }))
  await jobs.enqueueAll([...of('one'), ...of('two'), { name: 'a', payload: 'other' }])
  const claimed = await jobs.claim('a', { limit: 10 })
  expect(claimed.map(({ group, payload }) => [group, payload])).toEqual([
    ['two', 0],
    [null, 'other'],
  ])
  await holder?.complete()
  for (const job of claimed) await job.complete()
  const next = await jobs.claim('a', { limit: 10 })
  expect(next.map(({ group, payload }) => [group, payload])).toEqual([
    ['one', 0],
    ['two', 1],
  ])
})

test('a group whose next job was not let in, because a transaction could not see it, is found by the clean-up', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'a', group: 'g' },
    { name: 'a', group: 'g' },
  ])
  const [first] = await jobs.claim('a')
  const client = await scene.connect()
  await client.query('begin isolation level repeatable read')
  await client.query('select 1 from pg_class')
  // The claim is blocked after the snapshot of the transaction. The transaction ends the first job without seeing this
  // one.
  expect(await jobs.claim('a')).toEqual([])
  await first?.complete({ transaction: client })
  await client.query('commit')
  expect(await jobs.claim('a')).toEqual([])
  await jobs.cleanUp()
  expect(await jobs.claim('a')).toHaveLength(1)
})

test('groups are looked at in portions, and a clean-up goes through some of them', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const groups = Array.from({ length: 4500 }, (_, n) => `g${String(n).padStart(4, '0')}`)
  await jobs.enqueueAll(groups.map((group) => ({ name: 'a', group })))
  const stuck = async () => {
    const rows = await scene.sql(`select group_key as g from $schema.jobs where state = 'blocked' order by 1`)
    return rows.map(({ g }) => g)
  }
  const block = () =>
    scene.sql(
      `update $schema.jobs set state = 'blocked' where group_key in ('g0000', 'g1999', 'g2000', 'g4499')`,
    )
  const portionAfter = async (group: string | null) => {
    const after = group === null ? 'null' : `'${group}'`
    return (await scene.sql(`select $schema.jobs_unblock_stuck(${after}) as last`))[0]?.['last']
  }
  await block()
  expect(await portionAfter(null)).toBe('g1999')
  expect(await stuck()).toEqual(['g2000', 'g4499'])
  expect(await portionAfter('g1999')).toBe('g3999')
  expect(await stuck()).toEqual(['g4499'])
  expect(await portionAfter('g3999')).toBeNull()
  expect(await stuck()).toEqual([])
  await block()
  await until('all are found', async () => {
    await jobs.cleanUp()
    return (await stuck()).length === 0
  })
})
