import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Jobs } from '../../src/jobs/index.ts'
import { clients } from '../guard/clients.ts'
import { closeSharedServer, type JobsScene, openScene } from './scene.ts'

let scene: JobsScene
let jobs: Jobs
beforeAll(async () => {
  scene = await openScene()
  jobs = scene.open()
  await jobs.migrate()
  await scene.sql('create table $schema.effects (what text)')
})
beforeEach(async () => {
  await scene.sql('truncate $schema.jobs, $schema.ended_jobs, $schema.effects')
})
afterAll(async () => {
  await scene?.[Symbol.asyncDispose]()
  await closeSharedServer()
})

describe.each(clients)('in a transaction through %s', (_, open) => {
  test('jobs are enqueued and completed together with its other writes, and not at all when it is rolled back', async () => {
    await using client = await open(scene.server.url)
    await jobs.enqueue('first')
    const [job] = await jobs.claim('first')
    const workIn = (end: () => void) =>
      client.transaction(async (transaction, write) => {
        await write(`insert into ${scene.schema}.effects values ('of the first')`)
        await jobs.enqueue('second', null, { transaction })
        await job?.complete({ transaction })
        end()
      })
    const undone = workIn(() => {
      throw new Error('after all not')
    })
    await expect(undone).rejects.toThrow('after all not')
    expect(await scene.sql('select * from $schema.effects')).toEqual([])
    expect(await jobs.count()).toMatchObject([{ name: 'first', state: 'running' }])

    await workIn(() => {})
    expect(await scene.sql('select * from $schema.effects')).toHaveLength(1)
    expect(await jobs.count()).toMatchObject([
      { name: 'first', state: 'completed' },
      { name: 'second', state: 'ready' },
    ])
  })

  test('an attempt that has lost its job has no effect', async () => {
    await using client = await open(scene.server.url)
    const id = (await jobs.enqueue('a', null, { backoff: 0 })) ?? ''
    const [job] = await jobs.claim('a')
    await scene.sql('update $schema.jobs set due_at = clock_timestamp()')
    const [next] = await jobs.claim('a')
    expect(next?.attempt).toBe(2)
    const late = client.transaction(async (transaction, write) => {
      await write(`insert into ${scene.schema}.effects values ('late')`)
      await job?.complete({ transaction })
    })
    await expect(late).rejects.toMatchObject({ code: 'lease-lost', key: id })
    expect(await scene.sql('select * from $schema.effects')).toEqual([])
  })

  test('outside of a transaction nothing is enqueued or completed', async () => {
    await using client = await open(scene.server.url)
    await jobs.enqueue('a')
    const [job] = await jobs.claim('a')
    const words = 'Expected `transaction` to be inside a transaction'
    await expect(jobs.enqueue('b', null, { transaction: client.root })).rejects.toThrow(words)
    await expect(job?.complete({ transaction: client.root })).rejects.toThrow(words)
    expect(await jobs.count()).toMatchObject([{ name: 'a', state: 'running' }])
  })
})

test.each(['its own transaction', 'the caller’s transaction'])(
  'many thousand jobs of one call are all there or none, in %s',
  async (where) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    await scene.sql(`alter table $schema.jobs add check (payload::text <> '"bad"')`)
    const client = await scene.connect()
    const isOwn = where === 'its own transaction'
    const enqueueAll = (payloads: readonly unknown[]) =>
      jobs.enqueueAll(
        payloads.map((payload) => ({ name: 'a', payload, key: `${payload}` })),
        isOwn ? {} : { transaction: client },
      )
    const numbers = Array.from({ length: 12_001 }, (_, n) => n)
    if (!isOwn) await client.query('begin')
    await expect(enqueueAll(numbers.with(11_000, 'bad' as never))).rejects.toThrow()
    await client.query('rollback')
    expect(await jobs.count()).toEqual([])
    if (!isOwn) await client.query('begin')
    const ids = await enqueueAll(numbers.with(11_000, 7))
    await client.query('commit')
    expect(ids).toHaveLength(12_001)
    expect(ids.flatMap((id, n) => (id === null ? [n] : []))).toEqual([11_000])
    expect(await jobs.count()).toMatchObject([{ state: 'ready', count: 12_000 }])
    expect(await jobs.find(ids[12_000] ?? '')).toMatchObject({ payload: 12_000 })
  },
)
