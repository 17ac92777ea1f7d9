import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'
import { createJobSchedules, type JobSchedules } from '../../src/jobs/schedules/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'

let server: PostgresServer
let jobs: Jobs
let schedules: JobSchedules
let shell: Shell
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())
beforeEach(async () => {
  shell = new Shell({ HOLDFAST_STORE: server.url })
  jobs = createJobs(new pg.Pool({ connectionString: server.url }))
  schedules = createJobSchedules(jobs)
  await jobs.migrate()
})
afterEach(async () => {
  await schedules.stop()
  await jobs.close()
  await shell.close()
  await server.sql('drop schema holdfast cascade')
})

test('schedules lists and shows when a schedule runs next, when it ran last, and how that ended', async () => {
  const nothing = { code: 0, stdout: '', stderr: 'holdfast: there are no such schedules\n' }
  expect(await shell.run(['schedules'])).toEqual(nothing)
  await schedules.add('a\x1b[2J', {
    job: 'mail',
    payload: { to: '\x1b]0;x\x07' },
    every: '1s',
    tenant: 'acme',
    maxRuns: 1,
  })
  await schedules.add('night', {
    job: 'report',
    cron: '0 3 * * *',
    timezone: 'Europe/Berlin',
    jitter: '5m',
    priority: 3,
  })
  schedules.start()
  await until('it has fired', async () => (await schedules.find('a\x1b[2J'))?.state === 'over')
  const [job] = await jobs.claim('mail')
  await job?.complete()

  const listed = await shell.run(['schedules'])
  expect(listed.stdout).toMatch(/^ID +TENANT +TIMES +STATE +NEXT RUN +LAST RUN +OUTCOME$/m)
  expect(listed.stdout).toMatch(/^a\\x1b\[2J +acme +every 1s +over +– +\S+Z +completed$/m)
  expect(listed.stdout).toMatch(/^night +– +0 3 \* \* \* Europe\/Berlin +active +\S+Z +– +–$/m)
  const shown = await shell.run(['schedules', 'show', 'a\x1b[2J'])
  expect(shown.stdout).toMatch(/^ {2}runs +1 of 1$/m)
  expect(shown.stdout).toMatch(new RegExp(`^ {2}last run +\\S+Z, job ${job?.id}: completed$`, 'm'))
  const night = await shell.run(['schedules', 'show', 'night'])
  expect(night.stdout.match(/0[12]:00:00\.000Z$/gm)).toHaveLength(5)
  expect(night.stdout).toMatch(/^ {2}options +\{"priority":3\}$/m)
  for (const { stdout } of [listed, shown, night]) expect(stdout).toMatch(/^[\x20-\x7e\n–…]+$/)

  const asJson = await shell.run(['schedules', 'ls', '--tenant', 'acme', '--state', 'over', '--json'])
  expect(JSON.parse(asJson.stdout)).toMatchObject({
    id: 'a\x1b[2J',
    everyMs: 1000,
    last: { outcome: 'completed' },
  })
  const details = JSON.parse((await shell.run(['schedules', 'show', 'night', '--json'])).stdout)
  expect(details).toMatchObject({ id: 'night', payload: {}, nextRuns: { length: 5 } })
  expect((await shell.run(['schedules', 'ls', '--limit', '1'])).stderr).toBe(
    'holdfast: there are more than 1: see --limit, or --after a\\x1b[2J\n',
  )
  expect(await shell.run(['schedules', 'show', 'nobody'])).toEqual({
    ...{ code: 1, stdout: '', stderr: 'holdfast: there is no schedule of this id\n' },
  })
})

test('schedules pauses, resumes, removes and runs, by id or for a tenant', async () => {
  for (const id of ['a', 'b', 'c'])
    await schedules.add(id, { job: id === 'c' ? 'k' : 'j', every: '1h', tenant: id === 'a' ? 't' : 'u' })
  expect(await shell.run(['schedules', 'pause', '--tenant', 't'])).toMatchObject({
    code: 0,
    stdout: 'paused a\n',
  })
  expect(await shell.run(['schedules', 'pause', 'a'])).toMatchObject({ code: 1, stdout: '' })
  const again = await shell.run(['schedules', 'resume', 'a', 'b', '--json'])
  expect(again).toMatchObject({ code: 0, stdout: '{"resumed":["a"]}\n' })
  const ran = await shell.run(['schedules', 'run', 'a'])
  const [, jobId = ''] = /^enqueued (\d+)\n$/.exec(ran.stdout) ?? []
  expect(await jobs.find(jobId)).toMatchObject({ name: 'j', state: 'ready' })
  expect(await shell.run(['schedules', 'remove', '--job', 'j'])).toMatchObject({
    stdout: 'removed a\nremoved b\n',
  })
  expect((await schedules.list()).schedules).toMatchObject([{ id: 'c' }])

  const wrong = async (words: string[], message: string) =>
    expect(await shell.run(['schedules', ...words])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(message),
    })
  await wrong(['remove'], 'Expected either IDs, or at least one of --tenant and --job.')
  await wrong(['remove', 'c', '--job', 'k'], 'Expected either IDs')
  await wrong(['run'], 'Expected ID, got nothing.')
  await wrong(['enqueue'], 'Expected the first word to be one of ls, show')
  await wrong(
    ['ls', '--store', 'redis://localhost'],
    'to be a postgres:// URL, got one that begins with "redis"',
  )
})

test('schedules refuses options that the action would ignore, and a filter given twice', async () => {
  await schedules.add('a', { job: 'j', every: '1h', tenant: 't' })
  const refused = async (words: string[], message: string) =>
    expect(await shell.run(['schedules', ...words])).toMatchObject({
      code: 64,
      stdout: '',
      stderr: expect.stringContaining(message),
    })
  for (const action of ['remove', 'pause', 'resume'])
    for (const option of ['state=over', 'limit=1', 'after=0'])
      await refused(
        [action, '--tenant', 't', `--${option}`],
        `Expected an option of \`holdfast schedules ${action}\`, got --${option.split('=')[0]}.`,
      )
  await refused(
    ['run', 'a', '--tenant', 'u'],
    'Expected an option of `holdfast schedules run`, got --tenant.',
  )
  await refused(['show', 'a', '--job', 'k'], 'got --job.')
  await refused(['ls', '--tenant', 't', '--tenant', 'u'], 'Expected --tenant once, got it more than once.')
  expect((await schedules.list()).schedules).toMatchObject([{ id: 'a', state: 'active' }])
})
