import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'

let server: PostgresServer
let jobs: Jobs
let shell: Shell
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())
beforeEach(async () => {
  shell = new Shell({ HOLDFAST_STORE: server.url })
  jobs = createJobs(new pg.Pool({ connectionString: server.url }))
  await jobs.migrate()
})
afterEach(async () => {
  await jobs.close()
  await shell.close()
  await server.sql('drop schema holdfast cascade')
})

test('jobs counts by name and state, for people and for programs', async () => {
  expect(await shell.run(['jobs'])).toEqual({ code: 0, stdout: '', stderr: 'holdfast: there are no jobs\n' })
  await jobs.enqueueAll([{ name: 'mail' }, { name: 'mail' }, { name: 'bill', delay: '1h' }])
  const { code, stdout } = await shell.run(['jobs'])
  expect(code).toBe(0)
  expect(stdout.split('\n').map((line) => line.split(/ {2,}/).slice(0, 3))).toMatchObject([
    ['NAME', 'STATE', 'JOBS'],
    ['bill', 'delayed', '1'],
    ['mail', 'ready', '2'],
    [''],
  ])
  const lines = (await shell.run(['jobs', 'count', '--json'])).stdout.trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { name: 'bill', state: 'delayed', count: 1 },
    { name: 'mail', state: 'ready', count: 2 },
  ])
})

test('jobs ls and show tell what failed and why, and a stranger’s text does nothing to the terminal', async () => {
  const id = (await jobs.enqueue('mail\x1b[2J', { to: 'a\x1b]0;x\x07' }, { maxAttempts: 1 })) ?? ''
  const [job] = await jobs.claim('mail\x1b[2J', { label: 'web-1' })
  await job?.fail('no such\x1b[1m address\nsecond line')
  const listed = await shell.run(['jobs', 'ls', '--state', 'dead'])
  expect(listed.stdout).toMatch(new RegExp(`^ *${id} +mail\\\\x1b\\[2J +dead +1 of 1 .* web-1 +no such`, 'm'))
  const shown = await shell.run(['jobs', 'show', id])
  expect(shown.stdout).toMatch(/^ {2}attempt 1 failed at \S+Z, .* after its claim by web-1$/m)
  expect(shown.stdout).toMatch(/^ {4}no such\\x1b\[1m address$/m)
  expect(shown.stdout).toMatch(/^ +second line$/m)
  const asJson = await shell.run(['jobs', 'show', id, '--json'])
  expect(JSON.parse(asJson.stdout)).toMatchObject({ id, state: 'dead', failures: 1, worker: 'web-1' })
  for (const { stdout } of [listed, shown, asJson]) expect(stdout).toMatch(/^[\x20-\x7e\n–…]+$/)
  expect(await shell.run(['jobs', 'show', '999'])).toMatchObject({ code: 1, stdout: '' })
  expect((await shell.run(['jobs', 'ls', '--name', 'other'])).stderr).toBe(
    'holdfast: there are no such jobs\n',
  )
})

test('jobs ls shows the newest jobs first, and says how to see the others', async () => {
  const ids = await jobs.enqueueAll(Array.from({ length: 5 }, () => ({ name: 'a' })))
  const shown = (stdout: string) =>
    stdout
      .trimEnd()
      .split('\n')
      .slice(1)
      .map((line) => line.trim().split(' ')[0])
  const { stdout, stderr } = await shell.run(['jobs', 'ls', '--limit', '3'])
  expect(shown(stdout)).toEqual(ids.slice(2).reverse())
  expect(stderr).toBe(`holdfast: there are more than 3: see --limit, or --after ${ids[2]}\n`)
  const next = await shell.run(['jobs', 'ls', '--limit', '3', '--after', ids[2] ?? ''])
  expect([shown(next.stdout), next.stderr]).toEqual([ids.slice(0, 2).reverse(), ''])
  expect((await shell.run(['jobs', 'ls', '--before', '30d'])).stderr).toContain('there are no such jobs')
  expect((await shell.run(['jobs', 'ls', '--before', '1h'])).stderr).toContain('there are no such jobs')
  const asJson = await shell.run(['jobs', 'ls', '--since', '1h', '--json'])
  expect(asJson.stdout.trimEnd().split('\n')).toHaveLength(5)
  const chosen = await shell.run(['jobs', 'ls', '--id', `${ids[0]},${ids[3]}`])
  expect(shown(chosen.stdout)).toEqual([ids[3], ids[0]])
})

test('jobs retry, cancel and remove say what they did, and exit with 1 when there was nothing', async () => {
  const ids = (await jobs.enqueueAll([{ name: 'a' }, { name: 'b' }, { name: 'a' }])) as string[]
  const claimed = await jobs.claim(['a', 'b'], { limit: 2 })
  for (const job of claimed) await job.fail('x', { retry: false })
  expect(await shell.run(['jobs', 'retry', '--state', 'dead', '--name', 'a'])).toMatchObject({
    code: 0,
    stdout: `retried ${ids[0]}\n`,
  })
  expect(await shell.run(['jobs', 'retry', ids[1] ?? ''])).toMatchObject({
    code: 0,
    stdout: `retried ${ids[1]}\n`,
  })
  expect(await shell.run(['jobs', 'retry', '--state', 'dead', '--json'])).toEqual({
    code: 1,
    stdout: '{"retried":[]}\n',
    stderr: '',
  })
  const cancelled = await shell.run(['jobs', 'cancel', ids[2] ?? '', '--reason', 'wrong address'])
  expect(cancelled).toMatchObject({ code: 0, stdout: `cancelled ${ids[2]}\n` })
  expect(await jobs.find(ids[2] ?? '')).toMatchObject({ state: 'cancelled', error: 'wrong address' })
  expect(await shell.run(['jobs', 'cancel', ids[2] ?? '', '--reason', 'x'])).toMatchObject({
    code: 1,
    stdout: '',
  })
  expect(await shell.run(['jobs', 'remove', ids[2] ?? '', '--json'])).toMatchObject({
    stdout: `{"removed":["${ids[2]}"]}\n`,
  })
  expect(await jobs.find(ids[2] ?? '')).toBeNull()
})

test('jobs cancel and remove take a filter, and history counts what was enqueued and what ended', async () => {
  const ids = (await jobs.enqueueAll([{ name: 'a' }, { name: 'b' }, { name: 'b' }])) as string[]
  const cancelled = await shell.run(['jobs', 'cancel', '--name', 'b', '--reason', 'x', '--json'])
  expect(JSON.parse(cancelled.stdout)).toEqual({ cancelled: [ids[1], ids[2]] })
  const removed = await shell.run(['jobs', 'remove', '--state', 'cancelled', '--since', '1h'])
  expect(removed.stdout).toBe(`removed ${ids[1]}\nremoved ${ids[2]}\n`)
  const history = await shell.run(['jobs', 'history', '--span', '2h', '--step', '1h', '--json'])
  const steps = history.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { enqueued: number })
  expect(steps.map(({ enqueued }) => enqueued).reduce((sum, each) => sum + each)).toBe(1)
  expect((await shell.run(['jobs', 'history', '--span', '10m'])).stdout).toMatch(
    /^FROM +ENQUEUED +COMPLETED +DEAD +CANCELLED/,
  )
})

test('a mistake in what is typed is said in one sentence, without the url', async () => {
  const cases: [string[], string][] = [
    [
      ['jobs', 'drop'],
      'Expected the first word to be one of count, ls, show, retry, cancel, remove, history, pause, resume, limits, got "drop".',
    ],
    [['jobs', 'ls', 'x'], 'Expected the command to be given without another word, got "x".'],
    [['jobs', 'ls', '--state', 'late'], 'Expected --state to be one of pending, ready, blocked'],
    [['jobs', 'show'], 'Expected ID, got nothing.'],
    [['jobs', 'show', 'x'], 'Expected ID to be the id of a job, such as 4711, got "x".'],
    [
      ['jobs', 'retry'],
      'Expected either IDs, or at least one of --state, --name, --id, --since and --before.',
    ],
    [['jobs', 'ls', '--id', '1,x'], 'Expected --id to be the id of a job'],
    [['jobs', 'remove', '1', '--name', 'a'], 'Expected either IDs, or at least one of'],
    [['jobs', 'ls', '--since', '2026-13-01'], 'Expected --since to be a time such as 2026-11-23T05:00Z'],
    [
      ['jobs', 'ls', '--since', '99999999d'],
      'or how long ago it was with its unit, such as 1h, got "99999999d".',
    ],
    [
      ['jobs', 'ls', '--since', '0000-01-01'],
      'or how long ago it was with its unit, such as 1h, got "0000-01-01".',
    ],
    [['jobs', 'remove', '--before', '2026-02-30'], 'Expected --before to be a time such as'],
    [['jobs', 'remove', '--before', '2026-11-31T00:00Z'], 'Expected --before to be a time such as'],
    [['jobs', 'remove', '--before', '2026'], 'or how long ago it was with its unit, such as 1h, got "2026".'],
    [['jobs', 'remove', '--before', '20261123'], 'Expected --before to be a time such as'],
    [['jobs', 'remove', '--before', '2026-'], 'Expected --before to be a time such as'],
    [['jobs', 'retry', '--id', '1', '--id', '2'], 'Expected --id once, got it more than once.'],
    [
      ['jobs', 'ls', '--since', 'soon'],
      'Expected --since to be a time such as 2026-11-23T05:00Z, or how long ago',
    ],
    [['jobs', 'show', 'abc'], 'Expected ID to be the id of a job, such as 4711, got "abc"'],
    [['jobs', 'retry', '1', 'abc'], 'Expected ID to be the id of a job, such as 4711, got "abc"'],
    [['jobs', 'cancel', '1'], 'Expected --reason followed by TEXT, got nothing.'],
    [
      ['jobs', '--store', 'redis://:secret@h'],
      'Expected --store or HOLDFAST_STORE to be a postgres:// URL, got one that begins with "redis".',
    ],
  ]
  for (const [typed, sentence] of cases) {
    const { code, stdout, stderr } = await shell.run(typed)
    expect([code, stdout]).toEqual([64, ''])
    expect(stderr).toContain(sentence)
    expect(stderr).not.toContain('secret')
  }
  expect((await shell.run(['jobs', '--help'])).stdout).toContain('Usage: holdfast jobs [options] [count | ls')
})

test('without tables or without a server a command says what to do, and exits with 69', async () => {
  expect(await shell.run(['jobs', '--schema', 'elsewhere'])).toMatchObject({
    code: 69,
    stderr: expect.stringContaining('migrate()'),
  })
  expect(await shell.run(['jobs', '--store', 'postgres://127.0.0.1:1/x'])).toMatchObject({
    code: 69,
    stdout: '',
  })
})

test('jobs refuses an option that its word does not take, before anything is changed', async () => {
  const id = (await jobs.enqueue('a', null)) ?? ''
  expect(await shell.run(['jobs', 'cancel', '--name', 'a', '--limit', '1', '--reason', 'x'])).toEqual({
    code: 64,
    stdout: '',
    stderr:
      'holdfast: Expected an option of `holdfast jobs cancel`, got --limit. See holdfast jobs --help.\n',
  })
  expect(await jobs.find(id)).toMatchObject({ state: 'ready' })
  for (const words of [
    ['--id', id],
    ['show', id, '--name', 'a'],
    ['remove', id, '--reason', 'x'],
    ['history', '--since', '1h'],
  ])
    expect(await shell.run(['jobs', ...words])).toMatchObject({ code: 64, stdout: '' })
})

test('jobs pause, limits and resume say what the jobs of a name may do', async () => {
  expect(await shell.run(['jobs', 'limits'])).toEqual({
    code: 0,
    stdout: '',
    stderr: 'holdfast: no name is paused or has a limit\n',
  })
  await jobs.setLimit('bill', { concurrency: 5, rate: { points: 100, window: '1m' } })
  expect((await shell.run(['jobs', 'pause', 'mail', 'sms', 'mail'])).stdout).toBe('paused mail\npaused sms\n')
  expect((await shell.run(['jobs'])).stderr).toBe(
    'holdfast: there are no jobs\nholdfast: paused: mail, sms\n',
  )
  const { stdout } = await shell.run(['jobs', 'limits'])
  expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['NAME', 'PAUSED', 'CONCURRENCY', 'RATE'],
    ['bill', 'no', '5', '100 in 1m'],
    ['mail', 'yes', '–', '–'],
    ['sms', 'yes', '–', '–'],
    [''],
  ])
  expect(JSON.parse((await shell.run(['jobs', 'resume', 'mail', 'bill', '--json'])).stdout)).toEqual({
    resumed: ['mail'],
  })
  expect(await shell.run(['jobs', 'resume', 'mail'])).toEqual({
    code: 1,
    stdout: '',
    stderr: 'holdfast: there is no such name that is paused\n',
  })
  const [first] = (await shell.run(['jobs', 'limits', '--json'])).stdout.split('\n')
  expect(JSON.parse(first ?? '')).toMatchObject({ name: 'bill', isPaused: false, concurrency: 5 })
})

test('jobs pause --until-idle waits for the jobs that run, and leaves the name paused when it is interrupted', async () => {
  await jobs.enqueue('mail')
  const [job] = await jobs.claim('mail')
  const interrupted = shell.start(['jobs', 'pause', 'mail', '--until-idle'])
  await until('it waits', () => interrupted.stderr.includes('waiting for the jobs that run'))
  interrupted.signal('SIGINT')
  expect(await interrupted.exit).toBe(130)
  expect(await jobs.limits()).toMatchObject([{ name: 'mail', isPaused: true }])
  const waiting = shell.start(['jobs', 'pause', 'mail', '--until-idle'])
  let hasEnded = false
  void waiting.exit.then(() => {
    hasEnded = true
  })
  await new Promise((resolve) => setTimeout(resolve, 2000))
  expect(hasEnded).toBe(false)
  await job?.complete()
  expect(await waiting.exit).toBe(0)
})

test.each([
  [['pause'], 'Expected NAME, got nothing.'],
  [['resume'], 'Expected NAME, got nothing.'],
  [['limits', 'mail'], 'Expected the command to be given without another word, got "mail".'],
  [['resume', 'mail', '--until-idle'], 'Expected an option of `holdfast jobs resume`, got --until-idle.'],
  [['pause', 'mail', '--limit', '2'], 'Expected an option of `holdfast jobs pause`, got --limit.'],
])('jobs %j is refused by a sentence', async (words, sentence) => {
  expect(await shell.run(['jobs', ...words])).toEqual({
    code: 64,
    stdout: '',
    stderr: `holdfast: ${sentence} See holdfast jobs --help.\n`,
  })
})
