import { readFileSync } from 'node:fs'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openJobs } from '../../../src/jobs/index.ts'
import { createJobSchedules } from '../../../src/jobs/schedules/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

test('a role with the rights of the page changes and fires schedules, and cannot do more', async () => {
  const page = readFileSync(new URL('../../../docs/job-schedules.md', import.meta.url), 'utf8')
  const [, grants = ''] = /^```sql\n(.*?)^```$/ms.exec(page) ?? []
  const database = await server.createDatabase('scheduled')
  const url = new URL(database)
  url.username = 'jobs_scheduler'
  const owner = new Client({ connectionString: database })
  await owner.connect()
  await owner.query('create role jobs_scheduler login')
  const owned = await openJobs(database)
  await owned.migrate()
  await owner.query(grants)

  const jobs = await openJobs(url.href)
  const errors: unknown[] = []
  const schedules = createJobSchedules(jobs, { onError: (error) => errors.push(error) })
  await jobs.migrate()
  schedules.start()
  await schedules.put('a', { job: 'j', every: '1s' })
  await schedules.change('a', { payload: { n: 1 } })
  await until('it has fired', async () => (await schedules.find('a'))?.last?.outcome === 'ready')
  const [claimed] = await owned.claim('j')
  await claimed?.complete()
  await until(
    'the outcome is known',
    async () => (await schedules.list()).schedules[0]?.last?.endedAt !== null,
  )
  expect(await schedules.run('a')).not.toBeNull()
  expect(await schedules.pause('a')).toEqual(['a'])
  expect(await schedules.resume('a')).toEqual(['a'])
  expect(await schedules.remove('a')).toEqual(['a'])
  await schedules.stop()
  expect(errors).toEqual([])
  await expect(jobs.claim('j')).rejects.toMatchObject({ code: 'store-refused' })
  await jobs.close()
  await owned.close()
  await owner.end()
})
