import { afterAll, beforeAll, expect, test } from 'vitest'
import { closeSharedServer, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('in the tests, the database refuses a job that no function may make', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueue('a')
  for (const change of [
    "state = 'lost'",
    "state = 'running'",
    'due_at = now()',
    "if_child_fails = 'run'",
    "children = '{1}'",
  ])
    await expect(scene.sql(`update $schema.jobs set ${change}`)).rejects.toThrow('check constraint')
  await scene.sql(`select $schema.jobs_cancel(array(select id from $schema.jobs), '{ready}', 'test')`)
  const lost = scene.sql(`update $schema.ended_jobs set state = 'lost'`)
  await expect(lost).rejects.toThrow('check constraint')
})
