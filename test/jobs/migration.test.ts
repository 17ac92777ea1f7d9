import { afterAll, beforeAll, expect, test } from 'vitest'
import { MIGRATIONS } from '../../src/jobs/statements.ts'
import { connectionsOf } from '../../src/postgres/connections.ts'
import { migrate } from '../../src/postgres/migrations.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

/**
 * The changes that a later version of the library might make: a column, and a function beside those that older
 * processes call.
 */
const LATER = `
alter table "{schema}".jobs add column region text not null default 'north';
alter table "{schema}".ended_jobs add column region text not null default 'north';
create function "{schema}".jobs_move(moved bigint, to_region text) returns void language sql
set search_path = "{schema}", pg_temp as $function$
  update jobs set region = to_region where id = moved
$function$;`

test('processes of this version go on while a later one changes the tables, and cannot start again after it', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const connections = connectionsOf(scene.pool, { max: 1, applicationName: 'later version' })
  let finishFirst = (): void => {}
  const firstMayFinish = new Promise<void>((resolve) => {
    finishFirst = resolve
  })
  const done: unknown[] = []
  const worker = jobs.work(
    {
      a: async ({ payload }) => {
        if (payload === 'before') await firstMayFinish
        done.push(payload)
      },
    },
    { pollInterval: 100 },
  )
  await jobs.enqueue('a', 'before', { group: 'g' })
  await jobs.enqueue('a', 'after it in its group', { group: 'g' })
  await until('the first one runs', () => worker.jobCount === 1)

  await migrate(connections, {
    schema: scene.schema,
    component: 'jobs',
    migrations: [...MIGRATIONS, LATER],
  })

  finishFirst()
  await until('what was enqueued before is done', () => done.length === 2)
  await jobs.enqueue('a', 'enqueued after')
  await jobs.enqueueAll([{ name: 'a', payload: 'enqueued together' }])
  await until('what was enqueued after is done', () => done.length === 4)
  expect(done).toEqual(['before', 'after it in its group', 'enqueued after', 'enqueued together'])
  await worker.stop()
  expect(await scene.sql('select distinct state, region from $schema.ended_jobs')).toEqual([
    { state: 'completed', region: 'north' },
  ])

  await expect(scene.open().migrate()).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('have version 2, and this version of Holdfast knows 1 at most'),
  })
  await connections.close()
})
