import { afterAll, beforeAll, expect, test } from 'vitest'
import type { JobHandler } from '../../src/jobs/index.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test.each(['in a transaction', 'by itself'])(
  'a handler that completes its job %s makes room at once for the next one of a limited name',
  async (how) => {
    await using scene = await openScene()
    const jobs = scene.open()
    await jobs.migrate()
    await jobs.setLimit('a', { concurrency: 1 })
    await jobs.enqueueAll(Array.from({ length: 100 }, () => ({ name: 'a' })))
    let ended = 0
    const handle: JobHandler = async (job) => {
      if (how === 'by itself') await job.complete()
      else {
        const client = await scene.pool.connect()
        await client.query('begin')
        await job.complete({ transaction: client })
        await client.query('commit')
        client.release()
      }
      ended += 1
    }
    const begunAt = performance.now()
    jobs.work({ a: handle }, { pollInterval: '1h' })
    await until('all have ended', () => ended === 100)
    // If each of them waited for the next look, it would take 50 s.
    expect(performance.now() - begunAt).toBeLessThan(30_000)
  },
)
