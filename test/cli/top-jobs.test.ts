import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { Tmux } from './tmux.ts'

let server: PostgresServer
let jobs: Jobs
let shell: Shell
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())
beforeEach(async () => {
  shell = new Shell({ HOLDFAST_STORE: server.url })
  const pool = new pg.Pool({ connectionString: server.url })
  // The test of a store that goes away ends its sessions.
  pool.on('error', () => {})
  jobs = createJobs(pool)
  await jobs.migrate()
})
afterEach(async () => {
  await jobs.close()
  await shell.close()
  await server.sql('drop schema holdfast cascade')
})

test('top --jobs shows the jobs as they change, newest first, a page at a time', async () => {
  await using terminal = start()
  await terminal.shows('There are no jobs.')
  await terminal.shows(/^no jobs$/m)
  await jobs.enqueueAll(Array.from({ length: 60 }, () => ({ name: 'mail' })))
  await terminal.shows(/^ {3}ID +NAME +STATE +FAILED +AGE +WORKER +ERROR\n {3}60 +mail +ready +0 of 10 /m)
  await terminal.shows(/^60 ready$/m)
  terminal.press(']')
  await terminal.shows('page 2')
  await terminal.shows(/^ {3}10 +mail[^\n]*\n(?:[^\n]*\n){8} {4}1 +mail /m)
  terminal.press('N')
  await terminal.shows('There are no older jobs.')
  const [job] = await jobs.claim('mail', { label: 'web-1' })
  await terminal.shows(/^ {4}1 +mail +running +0 of 10 .* web-1/m)
  await terminal.shows(/^59 ready, 1 running$/m)
  await jobs.pause('mail')
  await terminal.shows(/^59 ready, 1 running; paused: mail$/m)
  await jobs.resume('mail')
  terminal.press('P')
  await terminal.shows(/^ {3}60 +mail /m)
  await job?.complete()
  await terminal.shows(/^59 ready, 1 completed$/m)
  terminal.press('q')
  await terminal.shows('exit 0')
})

test('top --jobs filters by state and name, and shows the page of a job with its stack', async () => {
  const id = await deadJob('mail', new Error('no such address'))
  await jobs.enqueueAll([{ name: 'mail' }, { name: 'bill' }])
  await using terminal = start({ args: '--state dead' })
  await terminal.shows(/^holdfast top --jobs .* state dead$/m)
  await terminal.shows(new RegExp(`^ +${id} +mail +dead +1 of 10 .* Error: no such address$`, 'm'))
  expect(terminal.screen).not.toContain('bill')
  terminal.press('Enter')
  await terminal.shows(/^ {2}payload +\{"to":"somebody"\}$/m)
  await terminal.shows(/^ {2}attempt 1 failed at \S+Z, .* after its claim by web-1$/m)
  await terminal.shows(/^ {4}Error: no such address\n {8}at /m)
  terminal.press('q')
  await terminal.shows(/^> +\d+ +mail +dead /m)
  terminal.press('s')
  await terminal.shows('state cancelled')
  await terminal.shows('No job fits the filter.')
  terminal.press('Escape')
  await terminal.shows(/^ +\d+ +bill +ready /m)
  terminal.press('/')
  await terminal.shows(/^Name: _$/m)
  terminal.type('bill')
  terminal.press('Enter')
  await terminal.shows(/^holdfast top --jobs .* name bill$/m)
  await terminal.shownNoMore(/^ +\d+ +mail /m)
  terminal.press('H')
  await terminal.shows('The jobs of the last hour, of the name bill')
  await terminal.shows(/^FROM +ENQUEUED +COMPLETED +DEAD +CANCELLED +SUPERSEDED$/m)
  await terminal.shows(/Z +1 +0 +0 +0 +0$/m)
  terminal.press('h')
  await terminal.shows(/^q Ctrl-C F10 +quit$/m)
  terminal.press('q', 'q', 'c')
  await terminal.shows('Mark a job first.')
  terminal.press('Down', 'c')
  await terminal.shows(/^Copied \d+, if this terminal lets programs copy\.$/m)
  expect(terminal.clipboard).toMatch(/^\d+$/)
})

test('top --jobs filters by ids and by time, as options and in the screen', async () => {
  await jobs.enqueueAll(['mail', 'bill', 'ship', 'mail'].map((name) => ({ name })))
  await server.sql("update holdfast.jobs set enqueued_at = now() - interval '3h' where id in (1, 2)")
  await using terminal = start({ args: '--id 1,2,3 --before 2h' })
  await terminal.shows(/^holdfast top --jobs .* id 1,2,3, before \S+Z$/m)
  await terminal.shows(/^ +2 +bill [^\n]*\n +1 +mail /m)
  expect(terminal.screen).not.toMatch(/ship|^ +4 /m)
  terminal.press('Escape')
  await terminal.shows(/^ +4 +mail [^\n]*\n +3 +ship /m)
  terminal.press('S')
  await terminal.shows(/^Enqueued since \(a time, or 1h ago as 1h\): _$/m)
  terminal.type('soon')
  terminal.press('Enter')
  await terminal.shows('Expected --since to be a time such as')
  terminal.press('C-u')
  terminal.type('1h')
  terminal.press('Enter')
  await terminal.shownNoMore(/^ +2 +bill /m)
  await terminal.shows(/^ +4 +mail [^\n]*\n +3 +ship /m)
  terminal.press('i')
  await terminal.shows(/^Ids: _$/m)
  terminal.type('3, 1')
  terminal.press('Enter')
  await terminal.shownNoMore(/^ +4 +mail /m)
  await terminal.shows(/^ +3 +ship /m)
  terminal.resize(80, 24)
  await terminal.shows(/^id 3,1, since \S+Z$/m)
  terminal.press('*', 'C')
  await terminal.shows(/^Cancel all jobs that fit the filter \(/m)
  terminal.type('sold out')
  terminal.press('Enter')
  await terminal.shows('Cancelled 1 job.')
  expect(await jobs.find('3')).toMatchObject({ state: 'cancelled', error: 'sold out' })
  expect(await jobs.find('1')).toMatchObject({ state: 'ready' })
})

test('top --jobs retries the marked job, once it has asked', async () => {
  const id = await deadJob('mail', new Error('x'))
  await using terminal = start()
  await terminal.shows(/^1 dead$/m)
  await terminal.shows(/^ +1 +mail +dead /m)
  terminal.press('R')
  await terminal.shows('Mark a job first.')
  terminal.press('Down', 'R')
  await terminal.shows(new RegExp(`^Retry job ${id}\\? Enter: yes\\. Esc: no\\.$`, 'm'))
  terminal.press('Escape')
  await terminal.shownNoMore('Retry job')
  expect(await jobs.find(id)).toMatchObject({ state: 'dead' })
  terminal.press('R', 'Enter')
  await terminal.shows('Retried 1 job.')
  await terminal.shows(/^1 ready$/m)
  expect(await jobs.find(id)).toMatchObject({ state: 'ready' })
  terminal.press('R', 'Enter')
  await terminal.shows('Nothing was retried: there is no such job that is over and not completed.')
})

test('top --jobs cancels all jobs of a filter, with a reason', async () => {
  await jobs.enqueueAll(Array.from({ length: 70 }, () => ({ name: 'mail' })))
  const other = (await jobs.enqueue('bill')) ?? ''
  await using terminal = start({ args: '--name mail' })
  await terminal.shows(/^71 ready$/m)
  await terminal.shows(/^ +70 +mail /m)
  terminal.press('*', 'C')
  await terminal.shows('Cancel all jobs that fit the filter (name mail)?')
  terminal.press('Enter')
  await terminal.shows('Nothing was cancelled: say why.')
  terminal.press('C')
  terminal.type('sent twice')
  await terminal.shows('Reason: sent twice_')
  terminal.press('Enter')
  await terminal.shows('Cancelled 70 jobs.')
  await terminal.shows(/^1 ready, 70 cancelled$/m)
  expect(await jobs.find(other)).toMatchObject({ state: 'ready' })
  const { jobs: cancelled } = await jobs.list({ name: 'mail', limit: 1 })
  expect(cancelled).toMatchObject([{ state: 'cancelled', error: 'sent twice' }])
})

test('top --jobs removes the ticked jobs, and no other', async () => {
  for (const _ of [1, 2, 3]) await deadJob('mail', new Error('x'))
  await using terminal = start()
  await terminal.shows(/^3 dead$/m)
  await terminal.shows(/^ +3 +mail +dead /m)
  terminal.press('Down', 't', 't')
  await terminal.shows(/^ \* +3 +mail[^\n]*\n \* +2 +mail[^\n]*\n> +1 +mail /m)
  await terminal.shows('ticked: 2')
  terminal.press('D')
  await terminal.shows('Remove 2 jobs? Enter: yes. Esc: no.')
  terminal.press('Enter')
  await terminal.shows('Removed 2 jobs.')
  await terminal.shows(/^1 dead$/m)
  expect((await jobs.list()).jobs.map(({ id }) => id)).toEqual(['1'])
})

test('top --jobs pauses the name of the marked job, and resumes it, once it has asked', async () => {
  await jobs.enqueueAll([{ name: 'bill' }, { name: 'mail' }])
  await using terminal = start()
  await terminal.shows(/^ {4}2 +mail +ready /m)
  terminal.press('Z')
  await terminal.shows('Mark a job first.')
  terminal.press('Down')
  terminal.press('Z')
  await terminal.shows('Pause all jobs of the name mail? Enter: yes. Esc: no.')
  terminal.press('Escape')
  await terminal.shows('q quit')
  expect(await jobs.limits()).toEqual([])
  terminal.press('Z')
  await terminal.shows('Pause all jobs of the name mail?')
  terminal.press('Enter')
  await terminal.shows('Paused mail. Jobs that run go on.')
  await terminal.shows(/^2 ready; paused: mail$/m)
  expect(await jobs.claim('mail')).toEqual([])
  terminal.press('Z')
  await terminal.shows('Resume all jobs of the name mail?')
  terminal.press('Enter')
  await terminal.shows('Resumed mail.')
  await terminal.shows(/^2 ready$/m)
  expect(await jobs.claim('mail')).toHaveLength(1)
})

test('a screen that became too small for a question does nothing at Enter', async () => {
  const id = await deadJob('mail', new Error('x'))
  await using terminal = start()
  await terminal.shows(/^1 dead$/m)
  await terminal.shows(/^ +1 +mail +dead /m)
  terminal.press('Down', 'D')
  await terminal.shows(`Remove job ${id}? Enter: yes. Esc: no.`)
  terminal.resize(100, 3)
  await terminal.shownNoMore('Remove job')
  terminal.press('Enter', 'C-c')
  await terminal.shows('exit 0')
  expect(await jobs.find(id)).toMatchObject({ state: 'dead' })
})

test('a filter ends at Enter also on a screen that became too small to show it', async () => {
  await jobs.enqueueAll(['mail', 'bill'].map((name) => ({ name })))
  await using terminal = start()
  await terminal.shows(/^ +2 +bill /m)
  terminal.press('i')
  terminal.type('1')
  await terminal.shows(/^Ids: 1_$/m)
  terminal.resize(100, 3)
  await terminal.shownNoMore('Ids')
  terminal.press('Enter')
  await terminal.shownNoMore('bill')
  terminal.resize(100, 24)
  await terminal.shows(/^ +1 +mail /m)
  expect(terminal.screen).not.toContain('Ids: 1_')
})

test('a paste of several lines is one text, and answers no question', async () => {
  await jobs.enqueueAll(['mail', 'bill', 'ship'].map((name) => ({ name })))
  await using terminal = start()
  await terminal.shows(/^ +3 +ship /m)
  terminal.press('i')
  terminal.paste('1\n3\n')
  await terminal.shows(/^Ids: 1 3_$/m)
  terminal.press('Enter')
  await terminal.shows(/^ +3 +ship [^\n]*\n +1 +mail /m)
  terminal.press('*', 'C')
  terminal.paste('sold out\nD\n')
  await terminal.shows('Reason: sold out D_')
  expect(await jobs.count()).toMatchObject([{ state: 'ready' }, { state: 'ready' }, { state: 'ready' }])
})

test('top --jobs only reads, so a role may look, and hears why it may not act', async () => {
  await deadJob('mail', new Error('x'))
  await server.sql(`create role viewer login;
    grant usage on schema holdfast to viewer;
    grant select on holdfast.jobs, holdfast.ended_jobs, holdfast.job_limits to viewer`)
  try {
    await using terminal = start({ url: server.url.replace('holdfast@', 'viewer@') })
    await terminal.shows(/^1 dead$/m)
    await terminal.shows(/^ +1 +mail +dead /m)
    terminal.press('Down', 'R', 'Enter')
    await terminal.shows(/^The retry is not confirmed\. .* permission denied for table /m)
    expect((await jobs.list()).jobs).toMatchObject([{ state: 'dead' }])
  } finally {
    await server.sql('drop owned by viewer; drop role viewer')
  }
})

test('what a stranger wrote into a job does nothing to the terminal', async () => {
  await jobs.enqueue('evil\x1b[2J', { to: 'a\x1b]0;owned\x07\u202e' })
  const [job] = await jobs.claim('evil\x1b[2J', { label: 'w\x1b[1m' })
  await job?.fail('bad\x1b[2J\nsecond line', { retry: false })
  await using terminal = start({ env: { NO_COLOR: '1' } })
  await terminal.shows(/^ +1 +evil\\x1b\[2J +dead +1 of 10 .* w\\x1b\[1m +bad\\x1b\[2J$/m)
  terminal.press('Enter')
  await terminal.shows('"a\\u001b]0;owned\\u0007\\u202e"')
  await terminal.shows(/^ {4}bad\\x1b\[2J\n {4}second line$/m)
  expect(terminal.lines({ styled: true }).join('\n')).not.toContain('\x1b[')
})

test('top --jobs keeps what it shows while the database is away, and goes on when it is back', async () => {
  await jobs.enqueue('before')
  await using terminal = start()
  await terminal.shows(/^ +1 +before +ready /m)
  await server.kill()
  await terminal.shows(/^STORE AWAY since \d\d:\d\d:\d\d: \S/m)
  expect(terminal.screen).toMatch(/^ +1 +before +ready /m)
  terminal.press('Down', 'R', 'Enter')
  await terminal.shows('The retry is not confirmed.')
  await server.restart()
  await until('the jobs are back', async () => (await jobs.enqueue('afterwards').catch(() => null)) !== null)
  await terminal.shows(/^ +\d+ +afterwards +ready /m)
  await terminal.shownNoMore('STORE AWAY')
  await server.stop()
  await terminal.shows('STORE AWAY')
  terminal.press('q')
  await terminal.shows('exit 0')
  await server.restart()
})

test('top --jobs says which tables are missing and what makes them, and shows the jobs once they are there', async () => {
  await using terminal = start({ args: '--schema elsewhere' })
  await terminal.shows(
    /^The PostgreSQL schema elsewhere (lacks a table|does not exist)\. Run jobs\.migrate\(\) first\./m,
  )
  expect(terminal.screen).not.toContain('STORE AWAY')
  const pool = new pg.Pool({ connectionString: server.url })
  const others = createJobs(pool, { schema: 'elsewhere' })
  try {
    await others.migrate()
    await terminal.shows('There are no jobs.')
    await others.enqueue('mail')
    await terminal.shows(/^ +1 +mail +ready /m)
    await terminal.shows(/^1 ready$/m)
    expect(terminal.screen).not.toContain('migrate')
  } finally {
    await others.close()
    await pool.end()
    await server.sql('drop schema elsewhere cascade')
  }
  terminal.press('C-c')
  await terminal.shows('exit 0')
})

test('without a terminal top --jobs prints the counts, then the newest jobs', async () => {
  await deadJob('mail', 'no such address')
  await jobs.enqueue('bill')
  await jobs.pause('sms')
  const { code, stdout, stderr } = await shell.run(['top', '--jobs', '--interval', '100ms', '-n', '2'])
  expect([code, stderr]).toEqual([0, ''])
  const look =
    /^holdfast top --jobs {2}\d\d:\d\d:\d\d \S+ {2}postgres \S+\n\nNAME +STATE +JOBS +OLDEST\nbill +ready +1 .*\nmail +dead +1 .*\n\npaused: sms\n\nID +NAME +STATE .*\n +2 +bill +ready .*\n +1 +mail +dead .* no such address$/gm
  expect(stdout.match(look)).toHaveLength(2)
  const asJson = await shell.run(['top', '--jobs', '--json', '--once', '--state', 'dead', '--since', '1h'])
  expect(asJson.stdout.trimEnd()).not.toContain('\n')
  expect(JSON.parse(asJson.stdout)).toEqual({
    at: expect.any(Number),
    counts: [
      expect.objectContaining({ name: 'bill', state: 'ready', count: 1 }),
      expect.objectContaining({ name: 'mail', state: 'dead', count: 1 }),
    ],
    paused: ['sms'],
    jobs: [expect.objectContaining({ id: '1', state: 'dead', error: 'no such address' })],
  })
  const chosen = await shell.run(['top', '--jobs', '--json', '--once', '--id', '2', '--before', '1ms'])
  expect(JSON.parse(chosen.stdout)).toMatchObject({ jobs: [{ id: '2' }] })
  const endless = shell.start(['top', '--jobs', '--json', '--interval', '100ms'])
  await endless.prints('"bill"')
  endless.signal('SIGTERM')
  expect(await endless.exit).toBe(143)
  await jobs.resume('sms')
})

test('a database that goes away ends top --jobs with 69 if it was told how often to look', async () => {
  const away = ['top', '--jobs', '--once', '--store', 'postgres://app:sesame@127.0.0.1:1/app']
  const { code, stdout, stderr } = await shell.run(away)
  expect([code, stdout]).toEqual([69, ''])
  expect(stderr).not.toContain('sesame')
  const missing = await shell.run(['top', '--jobs', '--once', '--schema', 'elsewhere'])
  // Several statements are on their way at once. The first to be answered names a table, or the schema itself.
  expect(missing).toEqual({
    code: 69,
    stdout: '',
    stderr: expect.stringMatching(
      /^holdfast: The PostgreSQL schema elsewhere (lacks a table|does not exist)\. Run jobs\.migrate\(\) first\. Holdfast was .+\. Cause: (relation "elsewhere\.\w+"|schema "elsewhere") does not exist\n$/,
    ),
  })
})

test.each([
  [['--jobs', '--store', 'redis://:secret@x'], 'to be a postgres:// URL, got one that begins with "redis".'],
  [['--jobs', '--prefix', 'job:'], 'Expected --prefix without --jobs, got both.'],
  [['--jobs', '--reverse'], 'Expected --reverse without --jobs, got both.'],
  [['--state', 'dead'], 'Expected --state together with --jobs, got it alone.'],
  [['--since', '1h'], 'Expected --since together with --jobs, got it alone.'],
  [['--before', '1h'], 'Expected --before together with --jobs, got it alone.'],
  [
    ['--jobs', '--id', '4x'],
    'Expected --id to be the id of a job, or several with commas between them, got "4x".',
  ],
  [['--jobs', '--state', 'late'], 'Expected --state to be one of pending, ready, blocked'],
  [['--jobs', '--since', '2026-99'], 'Expected --since to be a time such as 2026-11-23T05:00Z'],
  [['--jobs', '--once', '--schema', 'a b'], 'Expected --schema to be'],
])('holdfast top %s is refused', async (args, sentence) => {
  const { code, stdout, stderr } = await shell.run(['top', ...args])
  expect([code, stdout, stderr]).toEqual([64, '', expect.stringContaining(sentence)])
  expect(stderr).not.toContain('secret')
})

interface StartOptions {
  readonly args?: string
  readonly url?: string
  readonly env?: Readonly<Record<string, string>>
}

function start({ args = '', url = server.url, env = {} }: StartOptions = {}): Tmux {
  const terminal = new Tmux({ env: { HOLDFAST_STORE: url, ...env } })
  terminal.enter(`eval "$HOLDFAST top --jobs --interval 200ms ${args}"; echo exit $?`)
  return terminal
}

async function deadJob(name: string, error: unknown): Promise<string> {
  const id = (await jobs.enqueue(name, { to: 'somebody' })) ?? ''
  const [job] = await jobs.claim(name, { label: 'web-1' })
  await job?.fail(error, { retry: false })
  return id
}
