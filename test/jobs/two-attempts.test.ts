import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test.each(['old one first', 'new one first'])(
  'of two attempts of a job that complete it at once only the new one does, the %s',
  async (order) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    await jobs.enqueue('a', null, { backoff: 0 })
    const [old] = await jobs.claim('a', { ttl: 500 })
    const current = await until('its lease is over', async () => (await jobs.claim('a'))[0])
    expect([old?.attempt, current.attempt]).toEqual([1, 2])
    // One statement settles both.
    const pair = order === 'old one first' ? [old, current] : [current, old]
    const settled = await Promise.allSettled(pair.map((job) => job?.complete()))
    const byAttempt = new Map(settled.map((result, n) => [pair[n]?.attempt, result]))
    expect(byAttempt.get(1)).toMatchObject({ status: 'rejected', reason: { code: 'lease-lost' } })
    expect(byAttempt.get(2)).toMatchObject({ status: 'fulfilled' })
    expect(await jobs.find(current.id)).toMatchObject({ state: 'completed', attempt: 2 })
  },
)

test.each([true, false])(
  'the database tells the old attempts of a job as lost, and only these (completed jobs are kept: %s)',
  async (keeps) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    const ids = (await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }])) as string[]
    for (const job of await jobs.claim('a', { limit: 2 })) await job.giveBack()
    expect(await jobs.claim('a', { limit: 2 })).toMatchObject([{ attempt: 2 }, { attempt: 2 }])
    const [one, other] = ids
    const [row] = await scene.sql(`
      select $schema.jobs_settle('{${one},${one},${other}}', '{1,2,1}', '{}', null, ${keeps}, false) as answer`)
    const lost = ids.map((id) => ({ id, attempt: 1 }))
    expect(row?.['answer']).toEqual({ lost, outcomes: [] })
    expect(await jobs.find(other ?? '')).toMatchObject({ state: 'running', attempt: 2 })
    expect((await jobs.find(one ?? ''))?.state).toBe(keeps ? 'completed' : undefined)
  },
)
