import { afterEach, beforeEach, expect, test } from 'vitest'
import { storeName } from '../../src/cli/store-name.ts'
import { connect, type Locks } from '../../src/index.ts'
import { startRedis } from '../servers/redis-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'

let store: TestStore
let locks: Locks
let shell: Shell
beforeEach(async () => {
  store = await openSqlite()
  locks = await connect(store.url, { label: 'tester' })
  shell = new Shell({ HOLDFAST_STORE: store.url })
})
afterEach(async () => {
  await locks.close()
  await shell.close()
  await store[Symbol.asyncDispose]()
})

test('without a terminal top prints as many pages as it is told, one after the other', async () => {
  await locks.acquire('evil\x1b[2J')
  const { code, stdout, stderr } = await shell.run(['top', '--interval', '100ms', '-n', '2'])
  expect([code, stderr]).toEqual([0, ''])
  expect(stdout.match(/^holdfast top {2}\d\d:\d\d:\d\d \S+ {2}sqlite /gm)).toHaveLength(2)
  expect(stdout).toMatch(/^KEY +S +MODE +HOLDER +HELD +LEFT +TTL +FENCE +WAITIN▾ +LONGEST$/m)
  expect(stdout).toMatch(/^evil\\x1b\[2J +H +mutex +\S+ \(tester\) .* 0 +–$/m)
  expect(stdout).not.toContain('\x1b')
})

test('with a count top waits for a look that takes longer than its screen would wait', async () => {
  await using server = await startRedis()
  await using proxy = await startProxy({ targetPort: server.port })
  await using held = await connect(server.url)
  await held.acquire('slow')
  const store = `redis://127.0.0.1:${proxy.port}`
  const top = shell.start(['top', '--interval', '2s', '-n', '2', '--store', store])
  await top.prints('slow')
  // A look makes several trips.
  proxy.delay({ replyMs: 1200 })
  expect([await top.exit, top.stderr]).toEqual([0, ''])
  await proxy.close()
})

test('without a count top goes on until its reader has closed the pipe', async () => {
  const reader = shell.start(['top', '--interval', '100ms'])
  await reader.prints('holdfast top')
  reader.closeOutput()
  expect(await reader.exit).toBe(0)
  const told = shell.start(['top', '--interval', '100ms'])
  await told.prints('holdfast top')
  told.signal('SIGTERM')
  expect(await told.exit).toBe(143)
})

test('--json prints an object for each page, in the order that was asked for, only of the prefix', async () => {
  for (const key of ['job:a', 'job:b', 'other']) await locks.acquire(key)
  const args = ['--once', '--json', '--prefix', 'job:', '--sort', 'key', '--reverse']
  const { code, stdout } = await shell.run(['top', ...args])
  expect(code).toBe(0)
  expect(stdout.trimEnd()).not.toContain('\n')
  expect(JSON.parse(stdout)).toMatchObject({
    keys: 2,
    isCut: false,
    caveats: [],
    held: 2,
    waiting: 0,
    handOversPerSecond: null,
    rooms: [
      { key: 'job:b', holders: [{ fence: expect.stringMatching(/^\d+$/), owner: { label: 'tester' } }] },
      { key: 'job:a', queue: [] },
    ],
  })
})

test('a store that goes away ends top with 69 if it was told how many pages to print, and is waited for otherwise', async () => {
  await using server = await startRedis()
  const env = { HOLDFAST_STORE: server.url }
  const counted = shell.start(['top', '--interval', '100ms', '-n', '100000'], { env })
  const endless = shell.start(['top', '--interval', '100ms', '--json'], { env })
  await counted.prints('holdfast top')
  await endless.prints('"keys":0')
  await server.kill()
  expect(await counted.exit).toBe(69)
  await endless.prints('holdfast: The Redis server could not be reached')
  await server.restart()
  await using again = await connect(server.url)
  await again.acquire('afterwards')
  await endless.prints('afterwards')
  expect(endless.stderr.match(/could not be reached/g)).toHaveLength(1)
  endless.signal('SIGINT')
  expect(await endless.exit).toBe(130)
  const away = await shell.run(['top', '--once'], { env: { HOLDFAST_STORE: 'redis://:sesame@127.0.0.1:1' } })
  expect([away.code, away.stdout]).toEqual([69, ''])
  expect(away.stderr).not.toContain('sesame')
})

test.each([
  [['job:'], 'Expected options only, got "job:". A prefix goes into --prefix.'],
  [['--sort', 'age'], 'Expected --sort to be one of key, state, mode,'],
  [['--interval', '10ms'], 'Expected --interval to be at least 100ms'],
  [['-n', '0'], 'Expected --count to be a whole number from 1'],
  [['--store', 'memory:'], 'Expected a store that other processes share, got memory:.'],
])('holdfast top %s is refused', async (args, sentence) => {
  const { code, stderr } = await shell.run(['top', ...args])
  expect([code, stderr]).toEqual([64, expect.stringContaining(sentence)])
})

test.each([
  ['redis://user:secret@host:6379/0?password=more', 'redis host:6379'],
  ['redis://user:secret@in@host:6379', 'redis host:6379'],
  ['redis+cluster://user:secret@one:7000,two:7001', 'redis+cluster one:7000,two:7001'],
  ['redlock:redis://:secret@a:1,rediss://b:2,redis://:secret@c:3', 'redlock a:1,b:2,c:3'],
  ['postgres://app:secret@db.internal:5432/app?sslpassword=secret@x', 'postgres db.internal:5432'],
  ['sqlite:/var/lib/locks.db', 'sqlite /var/lib/locks.db'],
])('of the URL %s top shows only the address of the store', (url, shown) => {
  expect(storeName(url)).toBe(shown)
})
