import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { closeSharedServer, type JobsScene, openProxied, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/** Statements that write such rows wait until the connection that holds the advisory lock 42 gives it back. */
async function slow(
  scene: JobsScene,
  { verb, when }: { readonly verb: 'update' | 'delete'; readonly when: string },
) {
  await scene.sql(`
    create function $schema.wait() returns trigger language plpgsql as $$
    begin
      -- No wait for a lock: our statements give up such a wait after a moment.
      while not pg_try_advisory_xact_lock_shared(42) loop
        perform pg_sleep(0.01);
      end loop;
      return coalesce(new, old);
    end $$;
    create trigger wait before ${verb} on $schema.jobs for each row when (${when}) execute function $schema.wait()`)
  const client = await scene.connect()
  await client.query('select pg_advisory_lock(42)')
  return { end: () => client.query('select pg_advisory_unlock(42)') }
}

/** Waits until a claim is in the middle of its statement. Before that, another claim could overtake it. */
async function claimIsSlow(scene: JobsScene): Promise<void> {
  await until('a claim is slow', async () => {
    const rows = await scene.sql(
      `select 1 from pg_stat_activity where wait_event = 'PgSleep' and query like '%$schema%.jobs_claim%'`,
    )
    return rows.length > 0
  })
}

/** Waits until so many connections have asked for claims. */
async function claiming(scene: JobsScene, many: number): Promise<void> {
  await until('claims are asked for', async () => {
    const [row] = await scene.sql(
      `select count(*)::int as claims from pg_stat_activity where application_name = 'holdfast jobs' and query like '%$schema%.jobs_claim%'`,
    )
    return Number(row?.['claims']) >= many
  })
}

test('a claim whose answer is lost while its statement still runs gives its jobs to the worker that asked', async () => {
  await using proxied = await openProxied()
  const { scene, direct, proxy, url } = proxied
  const claims = await slow(scene, { verb: 'update', when: `new.state = 'running'` })
  const ids = await direct.enqueueAll([{ name: 'a' }, { name: 'a' }])
  const ran: [string, number][] = []
  const jobs = scene.open({}, { url })
  const worker = jobs.work(
    { a: ({ id, attempt }) => ran.push([id, attempt]) },
    { ttl: '1h', onError: () => {} },
  )
  await claimIsSlow(scene)
  proxy.cut()
  // The statement of the first one goes on.
  await claiming(scene, 2)
  await claims.end()
  await until('both have run', () => ran.length === 2)
  expect(ran).toEqual(ids.map((id) => [id, 1]))
  await worker.stop()
  expect(await direct.count()).toMatchObject([{ state: 'completed', count: 2 }])
})

test.each(['is given its jobs later', 'gives its jobs back when it stops'])(
  'while the statement of a lost claim still runs, the worker that asked takes other jobs, and %s',
  async (what) => {
    await using proxied = await openProxied()
    const { scene, direct, proxy, url } = proxied
    const claims = await slow(scene, { verb: 'update', when: `new.state = 'running' and new.name = 'slow'` })
    const ids = await direct.enqueueAll([{ name: 'slow' }, { name: 'slow' }])
    const ran: [string, number][] = []
    const jobs = scene.open({}, { url })
    const worker = jobs.work(
      { slow: ({ id, attempt }) => ran.push([id, attempt]), other: () => {} },
      { ttl: '1h', onError: () => {} },
    )
    await claimIsSlow(scene)
    proxy.cut()
    for (let n = 0; n < 10; n += 1) {
      const id = (await direct.enqueue('other')) ?? ''
      await until('the other one is completed', async () => (await direct.find(id))?.state === 'completed')
    }
    expect(ran).toEqual([])
    if (what === 'is given its jobs later') {
      await claims.end()
      await until('both have run', () => ran.length === 2)
      expect(ran).toEqual(ids.map((id) => [id, 1]))
      await worker.stop()
      expect(await direct.count()).toMatchObject([
        { count: 10 },
        { name: 'slow', state: 'completed', count: 2 },
      ])
    } else {
      const stopping = worker.stop()
      await claims.end()
      await stopping
      expect(await direct.count()).toMatchObject([{ count: 10 }, { name: 'slow', state: 'ready', count: 2 }])
    }
  },
)

test('a full batch of settlements does not wait for the statement of the batch before', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 502 }, (_, n) => ({ name: 'a', payload: n })))
  const [first, second, ...others] = await jobs.claim('a', { limit: 1000 })
  const settling = await slow(scene, { verb: 'delete', when: `old.id = ${first?.id}` })
  let firstIsDone = false
  const completingFirst = first?.complete().then(() => {
    firstIsDone = true
  })
  await until('its statement runs', async () => {
    const rows = await scene.sql(
      `select 1 from pg_stat_activity where state = 'active' and query like '%$schema%.jobs_settle%' and pid <> pg_backend_pid()`,
    )
    return rows.length > 0
  })
  let secondIsDone = false
  const completingSecond = second?.complete().then(() => {
    secondIsDone = true
  })
  await Promise.all(others.slice(0, 499).map((job) => job.complete()))
  expect([firstIsDone, secondIsDone]).toEqual([false, true])
  await settling.end()
  await Promise.all([completingFirst, completingSecond, ...others.slice(499).map((job) => job.complete())])
  expect(await jobs.count()).toMatchObject([{ state: 'completed', count: 502 }])
})
