import { stripVTControlCharacters } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite } from './stores.ts'

let server: RedisServer
let shell: Shell
beforeAll(async () => {
  server = await startRedis({ password: 'sesame' })
})
afterAll(() => server.close())
beforeEach(() => {
  shell = new Shell({ HOLDFAST_STORE: server.url })
})
afterEach(async () => {
  await server.command('CONFIG', 'SET', 'maxmemory', '0')
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
  await shell.close()
})

test('doctor describes each check in a sentence, and warnings are no failure', async () => {
  const { code, stdout, stderr } = await shell.run(['doctor'])
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout).toMatch(/^ok +connection +The store opens in .* m?s, and its user may use it\.$/m)
  expect(stdout).toMatch(/^warning +persistence +A server that restarts forgets all locks/m)
  expect(stdout).toMatch(/^1 warning, 8 ok\.$/m)
  expect(stdout).not.toContain('sesame')
  for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(120)
})

test('doctor exits with 1 when there is a problem, also in JSON', async () => {
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
  await server.command('CONFIG', 'SET', 'maxmemory', '50mb')
  const read = await shell.run(['doctor'])
  expect(read.code).toBe(1)
  expect(read.stdout).toMatch(/^problem +eviction +With maxmemory-policy allkeys-lru/m)
  const { code, stdout } = await shell.run(['doctor', '--json'])
  expect(code).toBe(1)
  expect(stdout.trimEnd()).not.toContain('\n')
  expect(JSON.parse(stdout)).toMatchObject({
    store: 'redis',
    verdict: 'problem',
    findings: expect.arrayContaining([expect.objectContaining({ check: 'eviction', verdict: 'problem' })]),
  })
})

test('doctor exits with 1 and says why when there is no store', async () => {
  const { code, stdout, stderr } = await shell.run(['doctor', '--store', 'redis://:sesame@127.0.0.1:1'])
  expect([code, stderr]).toEqual([1, ''])
  expect(stdout).toMatch(/^problem +connection +The Redis server could not be reached/)
  expect(stdout).not.toContain('sesame')
})

test('doctor groups its findings about several servers by server, and complains of nothing besides', async () => {
  const { code, stdout, stderr } = await shell.run([
    'doctor',
    '--store',
    `redlock:${server.url},redis://127.0.0.1:1`,
  ])
  expect([code, stderr]).toEqual([1, ''])
  expect(stdout).toMatch(new RegExp(`^127\\.0\\.0\\.1:${server.port}\nok +version `, 'm'))
  expect(stdout).toMatch(/^127\.0\.0\.1:1\nwarning +connection /m)
  expect(stdout).toMatch(/^problem +quorum +1 of 2 servers answer, and 2 have to\./m)
})

test('doctor puts the sentences below the marks when the terminal is narrow', async () => {
  const terminal = shell.terminal('stty cols 40; eval "$HOLDFAST doctor"', '')
  expect(await terminal.exit).toBe(0)
  const lines = terminal.stdout.split('\r\n').map(stripVTControlCharacters)
  expect(lines).toContain('warning  persistence')
  expect(lines).toContain('  A server that restarts forgets all')
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(40)
})

test('doctor works without any setting, and takes no arguments', async () => {
  await using store = await openSqlite()
  const { code, stdout } = await shell.run(['doctor', '--store', store.url])
  expect(code).toBe(0)
  expect(stdout).toMatch(/^All is well\.$/m)
  const refused = await shell.run(['doctor', 'now'])
  expect(refused.code).toBe(64)
  expect(refused.stderr).toContain('Expected options only, got "now".')
  expect((await shell.run(['doctor', '--store', 'mongodb://localhost'])).code).toBe(64)
})

test.each([
  'redlock:',
  'redlock:redis://:sesame@[::1',
  'redlock:redis://:sesame@a,redis://b:99999',
  'redis://:sesame@a b',
  'redis+sentinel://:sesame@a',
  'redis+cluster://:sesame@a:99999',
  'postgres://:sesame@a:99999/x',
  'etcd://:sesame@a:99999',
  'sqlite:',
])('doctor says in one sentence, without secrets, that %s is no URL of a store', async (url) => {
  const { code, stdout, stderr } = await shell.run(['doctor', '--store', url])
  expect([code, stdout]).toEqual([64, ''])
  expect(stderr).toMatch(/^holdfast: Expected .* See holdfast doctor --help\.\n$/)
  expect(stderr).not.toContain('sesame')
})
