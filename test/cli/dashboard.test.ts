import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { connect, type Locks } from '../../src/index.ts'
import { openJobs } from '../../src/jobs/index.ts'
import { freePort } from '../servers/free-port.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { type HoldfastProcess, Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'

let store: TestStore
let shell: Shell
let locks: Locks
let folder: string
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-dashboard-'))
  store = await openSqlite()
  shell = new Shell({ HOLDFAST_STORE: store.url })
  locks = await connect(store.url, { label: 'test' })
})
afterEach(async () => {
  await locks.close()
  await shell.close()
  await store[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
})

async function start(...args: readonly string[]): Promise<{ url: URL; program: HoldfastProcess }> {
  const program = shell.start(['dashboard', '--port', '0', '--json', ...args])
  await program.prints('\n')
  return { url: new URL(JSON.parse(program.stdout).url), program }
}

test('dashboard shows holders and waiters, read-only, until Ctrl-C', async () => {
  const lease = await locks.acquire('invoice:42')
  await locks.acquire('other')
  const { url, program } = await start('--prefix', 'invoice:', '--title', 'Orders')
  expect([url.hostname, url.search]).toEqual(['127.0.0.1', ''])
  const view = await (await fetch(new URL('api/view', url))).json()
  expect(view).toMatchObject({
    site: { title: 'Orders', allowEvict: false, hasJobs: false },
    rows: [{ key: 'invoice:42', holders: [{ fence: String(lease.fence) }] }],
  })
  // An open stream of a browser does not keep the command running.
  const stream = await fetch(new URL('api/live', url))
  expect(stream.status).toBe(200)
  program.signal('SIGINT')
  expect([await program.exit, program.stderr]).toEqual([0, ''])
  await stream.body?.cancel().catch(() => {})
})

test('dashboard --record-file keeps the history also while no page is open', async () => {
  const file = join(folder, 'history.db')
  const first = await start('--record-file', file, '--record-keep', '2h')
  const lease = await locks.acquire('job:1', { ttl: '8s', renew: false })
  await until('it is lost', () => lease.state === 'lost')
  const history = async (url: URL): Promise<{ expired: number }> =>
    ((await (await fetch(new URL('api/view', url))).json()) as { history: { expired: number } }).history
  await until('the loss is seen', async () => (await history(first.url)).expired === 1)
  first.program.signal('SIGTERM')
  expect([await first.program.exit, first.program.stderr]).toEqual([0, ''])
  const second = await start('--record-file', file)
  expect(await history(second.url)).toMatchObject({ expired: 1 })
  second.program.signal('SIGTERM')
  await second.program.exit
})

test('dashboard prints its address in a terminal, and with --allow-evict makes a token', async () => {
  const program = shell.terminal('eval "exec $HOLDFAST dashboard --port 0 --allow-evict"', '')
  await program.prints('Ctrl-C ends it.')
  const [, address = ''] = /^(http:\/\/127\.0\.0\.1:\d+\/\?token=[\w-]{24})\r\n/.exec(program.stdout) ?? []
  const entered = await fetch(address, { redirect: 'manual' })
  const cookie = entered.headers.get('set-cookie')?.split(';')[0] ?? ''
  expect((await fetch(new URL('api/view', address))).status).toBe(401)
  const lease = await locks.acquire('k')
  const answer = await fetch(new URL('api/evict', address), {
    method: 'POST',
    headers: { cookie, 'content-type': 'application/json' },
    body: JSON.stringify({ key: 'k', ids: [lease.id], reason: 'stuck' }),
  })
  expect(await answer.json()).toEqual({ evicted: [lease.id] })
  program.signal('SIGTERM')
  await program.exit
})

test('dashboard prints no token when a journal or a file may keep it, and says where it takes its token from', async () => {
  const token = 'correct-horse-battery'
  const path = join(folder, 'token')
  writeFileSync(path, `${token}\n`, { mode: 0o600 })
  for (const [args, env, source] of [
    [['--token', token], {}, '--token'],
    [['--token-file', path], {}, path],
    [[], { HOLDFAST_DASHBOARD_TOKEN: token }, 'HOLDFAST_DASHBOARD_TOKEN'],
    [[], { HOLDFAST_DASHBOARD_TOKEN_FILE: path }, path],
  ] as const) {
    for (const format of [[], ['--json']]) {
      const program = shell.start(['dashboard', '--port', '0', '--allow-evict', ...format, ...args], { env })
      await program.prints(format.length === 0 ? 'Ctrl-C ends it.\n' : '\n')
      const [address = ''] = /http:[^"\n]*/.exec(program.stdout) ?? []
      const says = `${address}\nIt asks for the token of ${source}.\nCtrl-C ends it.\n`
      expect(program.stdout).toBe(format.length === 0 ? says : `{"url":"${address}"}\n`)
      expect(new URL(address).search).toBe('')
      const headers = { authorization: `Bearer ${token}` }
      expect((await fetch(new URL('api/view', address), { headers })).status).toBe(200)
      expect((await fetch(new URL('api/view', address))).status).toBe(401)
      program.signal('SIGINT')
      expect([await program.exit, program.stderr]).toEqual([0, ''])
    }
  }
})

test.each(['--allow-evict', '--allow-job-changes'])(
  'dashboard makes no token for %s that no person would see',
  async (right) => {
    const { code, stdout, stderr } = await shell.run(['dashboard', '--port', '0', right])
    expect([code, stdout, stderr]).toEqual([
      64,
      '',
      `holdfast: Expected a token (--token-file or HOLDFAST_DASHBOARD_TOKEN) with ${right} where standard output is no terminal, got none: one that is made here could be shown to nobody. See holdfast dashboard --help.\n`,
    ])
  },
)

test('dashboard shows jobs when the database has tables for them', async () => {
  await using server = await startPostgres()
  const sites: unknown[] = []
  for (const migrates of [false, true]) {
    await using jobs = await openJobs(server.url)
    if (migrates) await jobs.migrate()
    const { url, program } = await start('--store', server.url)
    const answer = await fetch(new URL('api/view?view=jobs', url))
    sites.push(((await answer.json()) as { site: unknown }).site)
    program.signal('SIGINT')
    expect([await program.exit, program.stderr]).toEqual([0, ''])
  }
  expect(sites).toMatchObject([{ hasJobs: false }, { hasJobs: true, allowJobChanges: false }])
})

test('dashboard changes jobs only of a store that has them', async () => {
  const env = { HOLDFAST_DASHBOARD_TOKEN: 'correct-horse-battery' }
  const args = ['dashboard', '--port', '0', '--allow-job-changes']
  const { code, stderr } = await shell.run(args, { env })
  expect([code, stderr]).toEqual([
    64,
    'holdfast: Expected --allow-job-changes with a PostgreSQL store that has the tables of jobs, got a store without them. See holdfast dashboard --help.\n',
  ])
})

test('dashboard needs a token when other machines can reach it, and takes it from the environment', async () => {
  for (const host of ['0.0.0.0', '::', 'locks.example']) {
    const { code, stderr } = await shell.run(['dashboard', '--host', host])
    expect([code, stderr]).toEqual([
      64,
      `holdfast: Expected a token (--token-file or HOLDFAST_DASHBOARD_TOKEN) where --host is beyond this machine, got none for "${host}". See holdfast dashboard --help.\n`,
    ])
  }
  const env = { HOLDFAST_DASHBOARD_TOKEN: 'correct-horse-battery' }
  const program = shell.start(['dashboard', '--host', '0.0.0.0', '--port', '0', '--json'], { env })
  await program.prints('\n')
  const { port } = new URL(JSON.parse(program.stdout).url)
  const address = `http://127.0.0.1:${port}/api/view`
  expect((await fetch(address)).status).toBe(401)
  const headers = { authorization: 'Bearer correct-horse-battery' }
  expect((await fetch(address, { headers })).status).toBe(200)
  program.signal('SIGINT')
  expect(await program.exit).toBe(0)
})

/** Longer than the resolver takes. */
const LONG_HOST = 'x'.repeat(300)

test('dashboard says in one sentence what is wrong with its options', async () => {
  const port = await freePort()
  const taken = createServer().listen(port, '127.0.0.1')
  await once(taken, 'listening')
  for (const [args, message] of [
    [
      ['--port', String(port)],
      `Expected --host and --port to be a free place to listen, but 127.0.0.1:${port} is taken.`,
    ],
    [
      ['--host', LONG_HOST, '--port', '1', '--token', 'correct-horse-battery'],
      `Expected --host and --port to be a free place to listen, but ${LONG_HOST}:1 cannot be listened at (EINVAL).`,
    ],
    [['--port', 'x'], 'Expected --port to be a whole number from 0 to 65535, got "x".'],
    [
      ['--token', 'short'],
      'Expected the token of --token to be at least 16 characters of ASCII without spaces, got something else.',
    ],
    [['more'], 'Expected options only, got "more".'],
    [['--store', 'memory:'], 'Expected a store that other processes share, got memory:.'],
  ] as const) {
    const { code, stdout, stderr } = await shell.run(['dashboard', ...args])
    expect([code, stdout, stderr]).toEqual([64, '', `holdfast: ${message} See holdfast dashboard --help.\n`])
  }
  taken.close()
})

test('dashboard checks its options before it looks at the store', async () => {
  const missing = join(folder, 'none', 'history.db')
  for (const [args, message] of [
    [['--token', 'short'], 'Expected the token of --token to be at least 16 characters'],
    [
      ['--record-keep', 'foo'],
      'Expected --record-keep to be a number of seconds, or a duration such as 500ms, 5m or 1h, up to 576h, got "foo".',
    ],
    [['--record-keep', '5s'], 'Expected --record-keep to be at least 1m, got "5s".'],
    [['--record-file', missing], 'Expected --record-file to be in a folder that exists, got '],
  ] as const) {
    const { code, stderr } = await shell.run(['dashboard', '--store', 'redis://127.0.0.1:1', ...args])
    expect([code, stderr]).toEqual([64, expect.stringContaining(`holdfast: ${message}`)])
  }
})

test('dashboard names its own option when the file of --record-file has something else in it', async () => {
  const other = join(folder, 'other.db')
  const opened = await connect(`sqlite:${other}`)
  await opened.close()
  const { code, stderr } = await shell.run(['dashboard', '--port', '0', '--record-file', other])
  expect([code, stderr]).toEqual([
    64,
    `holdfast: Expected --record-file to be a file that the dashboard has made, or none yet, got ${JSON.stringify(other)} with something else in it. See holdfast dashboard --help.\n`,
  ])
})

test('dashboard refuses the --record-file of another store, and that of another dashboard', async () => {
  await using otherStore = await openSqlite()
  const file = join(folder, 'history.db')
  const args = ['dashboard', '--port', '0', '--record-file', file]
  const { program } = await start('--record-file', file)
  const twice = await shell.run(args)
  expect([twice.code, twice.stderr]).toEqual([
    64,
    expect.stringContaining('Expected --record-file to be a file that no other dashboard has open, got '),
  ])
  program.signal('SIGTERM')
  await program.exit
  await (await connect(otherStore.url)).close()
  const other = await shell.run([...args, '--store', otherStore.url])
  expect([other.code, other.stderr]).toEqual([
    64,
    expect.stringContaining('Expected --record-file to be a history of the store "sqlite '),
  ])
})
