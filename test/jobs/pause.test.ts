import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** What became of a promise so far. */
function watched(promise: Promise<unknown>): { readonly state: 'pending' | 'resolved' | 'rejected' } {
  const watch: { state: 'pending' | 'resolved' | 'rejected' } = { state: 'pending' }
  promise.then(
    () => {
      watch.state = 'resolved'
    },
    () => {
      watch.state = 'rejected'
    },
  )
  return watch
}

/** How many sessions have looked last whether a name is idle. */
async function sessionsThatLooked(scene: JobsScene): Promise<number> {
  const [row] = await scene.sql(
    `select count(*) from pg_stat_activity where query like 'select "$schema".jobs_still_busy%'`,
  )
  return Number(row?.['count'])
}

test('a pause that waits resolves when the last job of the name has ended, and not before', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }, { name: 'b' }])
  const [first, second] = await jobs.claim('a', { limit: 2 })
  const [other] = await jobs.claim('b')
  const pausing = scene.open().pause('a', { untilIdle: true })
  const pause = watched(pausing)
  await until('the name is paused', async () => (await jobs.limits()).length === 1)
  await first?.complete()
  await new Promise((resolve) => setTimeout(resolve, 1000))
  expect(pause.state).toBe('pending')
  await second?.fail('a retry must wait for the end of the pause')
  await pausing
  expect(await jobs.claim('a', { limit: 9 })).toEqual([])
  await other?.complete()
})

test('a pause that waits also waits for a claim that has begun before it, and for the jobs of that claim', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a')
  const claim = await scene.connect()
  await claim.query('begin')
  await claim.query(`select ${scene.schema}.jobs_claim('{a}', 1, 0, 'slow', 3600000, null, null)`)
  const pausing = jobs.pause('a', { untilIdle: true })
  const pause = watched(pausing)
  await new Promise((resolve) => setTimeout(resolve, 1000))
  expect(pause.state).toBe('pending')
  // Nobody waits for a claim that begins after the pause.
  const later = await scene.connect()
  await later.query('begin')
  await later.query(`select ${scene.schema}.jobs_claim('{a}', 1, 0, 'later', 3600000, null, null)`)
  await claim.query('commit')
  await new Promise((resolve) => setTimeout(resolve, 1000))
  expect(pause.state).toBe('pending')
  await scene.sql(`select $schema.jobs_settle('{1}', '{1}', null, '{}', null, true, false)`)
  await pausing
  await later.query('rollback')
})

test('no job of a name runs after a pause that waited, while a fleet claims all the time', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  let running = 0
  let done = 0
  const work = async (): Promise<void> => {
    running += 1
    await new Promise(setImmediate)
    running -= 1
    done += 1
  }
  for (let n = 0; n < 3; n += 1) scene.open().work({ a: work }, { concurrency: 10 })
  for (let turn = 0; turn < 20; turn += 1) {
    const before = done
    await jobs.enqueueAll(Array.from({ length: 300 }, () => ({ name: 'a' })))
    await until('jobs run', () => done > before + 20)
    await jobs.pause('a', { untilIdle: true })
    const paused = done
    expect(running).toBe(0)
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect([running, done]).toEqual([0, paused])
    await jobs.resume('a')
  }
})

test('a pause that waits ends with its signal, or when the jobs are closed, and the name stays paused', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a')
  const [job] = await jobs.claim('a')
  const reason = new Error('enough')
  const abort = new AbortController()
  const pausing = jobs.pause('a', { untilIdle: true, signal: abort.signal })
  pausing.catch(() => {})
  await until('the name is paused', async () => (await jobs.limits()).length === 1)
  abort.abort(reason)
  await expect(pausing).rejects.toBe(reason)
  await expect(jobs.pause('a', { untilIdle: true, signal: abort.signal })).rejects.toBe(reason)
  const closed = scene.open()
  const before = await sessionsThatLooked(scene)
  const waiting = closed.pause('a', { untilIdle: true })
  waiting.catch(() => {})
  await until('it waits', async () => (await sessionsThatLooked(scene)) > before)
  await closed.close()
  await expect(waiting).rejects.toMatchObject({ code: 'closed' })
  expect(await jobs.limits()).toMatchObject([{ name: 'a', isPaused: true }])
  await job?.complete()
  await jobs.pause('a', { untilIdle: true })
  await expect(jobs.pause('a', { untilIdle: 1 as never })).rejects.toThrow(
    'Expected `untilIdle` to be true or false, got 1.',
  )
})

test('a pause that waits goes on after the database was away', async () => {
  await using proxied = await openProxied()
  const { scene } = proxied
  const direct = scene.open()
  await direct.migrate()
  await direct.enqueue('a')
  const [job] = await direct.claim('a')
  const pausing = scene.open({}, { url: proxied.url }).pause('a', { untilIdle: true })
  const pause = watched(pausing)
  await until('the name is paused', async () => (await direct.limits()).length === 1)
  await proxied.proxy.cut()
  await new Promise((resolve) => setTimeout(resolve, 500))
  expect(pause.state).toBe('pending')
  await job?.complete()
  await pausing
})
