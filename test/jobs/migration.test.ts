import { afterAll, beforeAll, expect, test } from 'vitest'
import { MIGRATIONS } from '../../src/jobs/statements.ts'
import { connectionsOf } from '../../src/postgres/connections.ts'
import { migrate } from '../../src/postgres/migrations.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('processes of version 1 go on beside those of this one while a fleet is updated, and cannot go back', async () => {
  await using scene = await openScene()
  const connections = connectionsOf(scene.pool, { max: 1, applicationName: 'version 1' })
  const older = { schema: scene.schema, component: 'jobs', migrations: MIGRATIONS.slice(0, 1) } as const
  await migrate(connections, older)
  const v1 = async (call: string): Promise<unknown> =>
    (await scene.sql(`select $schema.${call} as answer`))[0]?.['answer']
  const entry = (position: number, group: string | null) => ({
    position,
    name: 'a',
    payload: JSON.stringify(position),
    priority: 0,
    group_key: group,
    max_attempts: 10,
    backoff_ms: 1000,
    max_backoff_ms: 1000,
  })
  const enqueueV1 = (...groups: (string | null)[]) =>
    v1(`jobs_enqueue('${JSON.stringify(groups.map((group, position) => entry(position, group)))}')`)
  await enqueueV1('g', 'g', null)
  const claimed = (await v1(`jobs_claim('{a}', 10, 'old', 60000, null)`)) as { jobs: { id: string }[] }
  expect(claimed.jobs).toHaveLength(2)

  const jobs = scene.open()
  await jobs.migrate()

  const done: unknown[] = []
  const worker = jobs.work({ a: ({ payload }) => done.push(payload) }, { pollInterval: 100 })
  await jobs.enqueue('a', 'of this version', { group: 'g' })
  const ids = claimed.jobs.map(({ id }) => id)
  expect(await v1(`jobs_settle('{${ids}}', '{1,1}', '[]', true, false)`)).toEqual({ lost: [], outcomes: [] })
  await until('the rest of the group is done, in its order', () => done.length === 2)
  expect(done).toEqual([1, 'of this version'])
  await enqueueV1(null)
  await until('what version 1 enqueues is done', () => done.length === 3)
  await worker.stop()

  await expect(migrate(connections, older)).rejects.toMatchObject({ code: 'store-refused' })
  await connections.close()
})
