import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { afterEach, expect, test, vi } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { StoreError } from '../../../src/errors.ts'
import { defaultSqlitePath, openSqlite, sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { ended, startProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'

const root = freshFolder()
let folders = 0
/** A folder of its own, which does not exist yet. */
function freshPath(...names: string[]): string {
  folders += 1
  return join(root, String(folders), ...names)
}

afterEach(() => vi.unstubAllEnvs())

async function errorOf(path: string): Promise<StoreError> {
  const store = sqliteStore(path)
  const error = await askOnce(store).then(
    () => undefined,
    (reason: unknown) => reason,
  )
  await store.close()
  expect(error).toBeInstanceOf(StoreError)
  return error as StoreError
}

async function askOnce(store: Store): Promise<unknown> {
  return store.acquire(ticket())
}

test('a file that is not a database is refused and left as it is', async () => {
  const path = freshPath()
  const text = 'dear diary, '.repeat(1_000)
  writeFileSync(path, text)
  const error = await errorOf(path)
  expect(error.code).toBe('store-refused')
  expect(error.message).toBe(`Expected "${path}" to be an SQLite database, got another kind of file.`)
  expect(readFileSync(path, 'utf8')).toBe(text)
})

test('the database of another program is refused and left as it is', async () => {
  const folder = freshPath()
  mkdirSync(folder)
  const path = join(folder, 'app.db')
  const other = openDatabase(path, undefined)
  other.exec('CREATE TABLE customer (name TEXT)')
  other.close()
  const before = hashOf(path)
  const error = await errorOf(path)
  expect(error.code).toBe('store-refused')
  expect(error.message).toBe(
    `Expected "${path}" to be a lock file or no file yet, got the database of another program.`,
  )
  expect(hashOf(path)).toBe(before)
  expect(readdirSync(folder)).toEqual(['app.db'])
})

test.each([
  ['later', 7, 'Use one version of holdfast in all programs that share it.'],
  [
    'earlier',
    5,
    'Stop the programs with an older version of holdfast and delete the file with its -wal and -shm; nothing but held locks is lost.',
  ],
])('a lock file of a %s format is refused, and is not changed', async (_, format, advice) => {
  const path = freshPath('locks.db')
  await (await openSqlite(path)).close()
  const other = openDatabase(path, undefined)
  other.exec(`PRAGMA user_version = ${format}; DROP TABLE closure`)
  other.close()
  const before = hashOf(path)
  const error = await errorOf(path)
  expect(error.code).toBe('store-refused')
  expect(error.message).toBe(
    `Expected the lock file "${path}" to have format 6, got format ${format}. ${advice}`,
  )
  expect(hashOf(path)).toBe(before)
})

test('a damaged lock file is refused, with what to do', async () => {
  const [sound, path] = [freshPath('locks.db'), freshPath()]
  await (await openSqlite(sound)).close()
  // The first page is that of a database, and the rest makes no sense.
  writeFileSync(path, readFileSync(sound).fill(0x5a, 1_024))
  const error = await errorOf(path)
  expect(error.message).toBe(
    `The lock file "${path}" is damaged. Stop the processes that use it and delete it with its -wal and -shm; nothing but held locks is lost.`,
  )
})

test('a folder in the place of the file is refused', async () => {
  const path = freshPath()
  mkdirSync(path)
  expect(await errorOf(path)).toMatchObject({
    code: 'store-refused',
    message: `Expected the lock file "${path}" to be a file, got a folder.`,
  })
  expect(await errorOf('/dev/null')).toMatchObject({
    code: 'store-refused',
    message: 'Expected the lock file "/dev/null" to be a file, got a device, a pipe or a socket.',
  })
})

test('missing folders are made, for the user alone', async () => {
  const path = freshPath('state', 'holdfast', 'locks.db')
  const store = await openSqlite(path)
  expect(await store.acquire(ticket())).toMatchObject({ tag: 'held' })
  expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700)
  await store.close()
})

test('a folder that cannot be made is one clear sentence', async () => {
  const file = freshPath()
  writeFileSync(file, '')
  const folder = join(file, 'folder')
  expect(await errorOf(join(folder, 'locks.db'))).toMatchObject({
    code: 'store-refused',
    message: `The folder "${folder}" of the lock file cannot be made. Make it, or give this user write permission.`,
  })
})

test('without permission to write, each way it can be missing is one clear sentence, and nothing is left', async () => {
  const folder = freshPath()
  mkdirSync(folder)
  chmodSync(root, 0o755)
  const [readOnlyFile, readOnlyFolder, existing] = ['file.db', 'folder', 'existing'].map((name) =>
    join(folder, name),
  )
  await (await openSqlite(readOnlyFile ?? '')).close()
  chmodSync(readOnlyFile ?? '', 0o444)
  mkdirSync(readOnlyFolder ?? '')
  mkdirSync(existing ?? '')
  await (await openSqlite(`${existing}/locks.db`)).close()
  chmodSync(`${existing}/locks.db`, 0o666)
  chmodSync(readOnlyFolder ?? '', 0o555)
  chmodSync(existing ?? '', 0o555)
  chmodSync(folder, 0o555)
  const before: readonly unknown[] = readdirSync(folder, { recursive: true })
  const paths = [readOnlyFile ?? '', `${readOnlyFolder}/locks.db`, `${existing}/locks.db`]
  const errors = await errorsAsNobody(paths)
  expect(errors).toEqual(
    paths.map((path) => ({
      code: 'store-refused',
      message: `The lock file "${path}" cannot be written. Give this user write permission for the file and its folder.`,
    })),
  )
  expect(await errorsAsNobody([`${folder}/new/locks.db`])).toEqual([
    {
      code: 'store-refused',
      message: `The folder "${folder}/new" of the lock file cannot be made. Make it, or give this user write permission.`,
    },
  ])
  // Fewer is possible: this process' own -wal and -shm files go when its closed connections are collected as garbage.
  const left = readdirSync(folder, { recursive: true })
  expect(left.filter((name) => !before.includes(name))).toEqual([])
  for (const made of [readOnlyFolder ?? '', existing ?? '', folder]) chmodSync(made, 0o755)
})

/** The answers to a user without any rights who asks for a key in each of these files. */
async function errorsAsNobody(paths: readonly string[]): Promise<unknown> {
  const child = startProcess(new URL('processes/ask-as-nobody.ts', import.meta.url), ...paths)
  const end = ended(child)
  const told = await Promise.race([new Promise((resolve) => child.once('message', resolve)), end])
  await end
  return told
}

test('on a full disk a new file stays empty, and is used once there is room', async () => {
  const path = freshPath('new', 'locks.db')
  // Half of the space that the tables need.
  expect(await errorsWithin(4, path, 1)).toEqual({ held: 0, code: 'store-unavailable' })
  expect(readdirSync(join(path, '..'))).toEqual(['locks.db'])
  expect(statSync(path).size).toBe(0)
  expect(await errorsWithin(1000, path, 1)).toEqual({ held: 1, code: undefined })
})

test('a disk that fills up costs the calls that need room, and the file stays sound', async () => {
  const path = freshPath('locks.db')
  const told = await errorsWithin(100, path, 100_000)
  expect(told).toMatchObject({ code: 'store-unavailable' })
  expect(told.held).toBeGreaterThan(10)
  const store = sqliteStore(path)
  expect((await store.inspect({ prefix: '', cursor: undefined, count: 10_000 })).rooms).toHaveLength(
    told.held,
  )
  expect(await store.acquire(ticket())).toMatchObject({ tag: 'held' })
  await store.close()
})

/** Takes keys until one is refused, in a process whose files may not grow beyond this many KiB. */
async function errorsWithin(
  kib: number,
  path: string,
  most: number,
): Promise<{ held: number; code: string }> {
  const script = new URL('processes/fill.ts', import.meta.url).pathname
  const command = `ulimit -f ${kib}; exec "$0" --import tsx "$@"`
  const output = execFileSync('bash', ['-c', command, process.execPath, script, path, String(most)], {
    encoding: 'utf8',
  })
  return JSON.parse(output)
}

test.each([
  ['with', ['', '-wal', '-shm']],
  ['without', ['']],
])(
  'a file that was deleted %s its companions is made anew, and its holders hear of that',
  async (_, suffixes) => {
    const path = freshPath('locks.db')
    const [one, other] = [await openSqlite(path), await openSqlite(path)]
    const mine = ticket()
    const before = await one.acquire(mine)
    for (const suffix of suffixes) rmSync(path + suffix, { force: true })
    await until('the holder is told', async () => (await one.renew([mine]))[0]?.tag === 'gone')
    const again = ticket()
    const after = await one.acquire(again)
    if (before.tag !== 'held' || after.tag !== 'held') throw new Error('Expected both to be held')
    expect(after.fence).toBeGreaterThan(before.fence)
    await until('the other process follows', async () => (await other.renew([again]))[0]?.tag === 'held')
    await one.close()
    await other.close()
    const later = await openSqlite(path)
    expect(await later.renew([again])).toMatchObject([{ tag: 'held' }])
    await later.close()
  },
)

test('a database without tables that has a log already becomes a lock file that all processes share', async () => {
  const path = freshPath('locks.db')
  mkdirSync(join(path, '..'))
  const prepared = openDatabase(path, undefined)
  prepared.exec('PRAGMA journal_mode = WAL')
  prepared.close()
  const [one, other] = [await openSqlite(path), await openSqlite(path)]
  await one.acquire(ticket())
  expect(await other.acquire(ticket({ patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  await one.close()
  await other.close()
})

const wakesOf = (path: string): string => `${path}-wakes-${userInfo().uid}`

test.each<[what: string, happen: (path: string, ask: () => Promise<unknown>) => Promise<void> | void]>([
  ['everything was deleted', (path) => rmSync(join(path, '..'), { recursive: true })],
  ['the folder of sockets was deleted', (path) => rmSync(wakesOf(path), { recursive: true })],
  [
    'everything was deleted while the file was refused',
    async (path, ask) => {
      const database = openDatabase(path, undefined)
      database.exec('DELETE FROM meta')
      database.close()
      await expect(ask()).rejects.toMatchObject({ code: 'store-refused' })
      rmSync(join(path, '..'), { recursive: true })
    },
  ],
  [
    'no socket could be opened for a while',
    async (path, ask) => {
      vi.stubEnv('TMPDIR', join(root, 'nowhere'))
      rmSync(wakesOf(path), { recursive: true })
      writeFileSync(wakesOf(path), 'in the way')
      await ask()
      await delay(300)
      await ask()
      await delay(300)
      rmSync(wakesOf(path))
    },
  ],
])('wakes flow again after %s', async (_, happen) => {
  const path = freshPath('locks.db')
  const [one, other] = [await openSqlite(path), await openSqlite(path)]
  const heard: unknown[] = []
  await other.listen?.((wake) => heard.push(wake))
  expect(heard.splice(0)).toEqual([{ tag: 'all' }])
  await happen(path, async () => other.release({ key: 'other', id: 'id', cancel: false }))
  let attempts = 0
  const isWoken = async (): Promise<boolean> => {
    attempts += 1
    const key = `key ${attempts}`
    const [mine, next] = [ticket({ key }), ticket({ key })]
    await one.acquire(mine)
    await other.acquire(next)
    await one.release({ key: mine.key, id: mine.id, cancel: false })
    await delay(100)
    await other.release({ key: next.key, id: next.id, cancel: true })
    return heard.some((wake) => isDeepStrictEqual(wake, { tag: 'ticket', id: next.id }))
  }
  await until('the next one is woken', async () => isWoken().catch(() => false))
  expect(heard[0]).toEqual({ tag: 'all' })
  await one.close()
  await other.close()
})

test('a file that was replaced by something else is refused from then on', async () => {
  const path = freshPath('locks.db')
  const store = await openSqlite(path)
  await store.acquire(ticket())
  rmSync(path)
  writeFileSync(path, 'not a lock file any more '.repeat(100))
  const refused = until('it is noticed', async () => {
    try {
      await store.acquire(ticket())
      return false
    } catch (error) {
      return error
    }
  })
  expect(await refused).toMatchObject({ name: 'StoreError', code: 'store-refused' })
  // The store works again when that file is gone.
  rmSync(path)
  await until('it works again', async () =>
    askOnce(store).then(
      () => true,
      () => false,
    ),
  )
  await store.close()
})

test('a file that is asked for all the time while it is refused is still tried again', async () => {
  const path = freshPath()
  writeFileSync(path, 'in the way '.repeat(100))
  const store = sqliteStore(path)
  const seen = new Set<unknown>()
  const ask = () =>
    askOnce(store).then(
      () => true,
      (error) => {
        seen.add(error)
        return false
      },
    )
  for (const _ of [1, 2]) expect(await ask()).toBe(false)
  // The error is new each time, and not one that was thrown before.
  expect(seen.size).toBe(2)
  rmSync(path)
  await until('it is tried again', ask, { everyMs: 5 })
  await store.close()
})

test('a closed store says so, and closing it again is fine', async () => {
  const store = await openSqlite(freshPath('locks.db'))
  await store.close()
  await store.close()
  const closed = {
    code: 'store-refused',
    message: 'The store was closed. Open a new one with sqliteStore().',
  }
  const calls = [
    async () => store.acquire(ticket()),
    async () => store.renew([ticket()]),
    async () => store.release({ key: 'key', id: 'id', cancel: true }),
    async () => store.evict({ key: 'key', id: undefined, reason: '' }),
    async () => store.inspect({ prefix: '', cursor: undefined, count: 1 }),
    async () => store.listen?.(() => {}),
  ]
  for (const call of calls) await expect(call()).rejects.toMatchObject({ name: 'StoreError', ...closed })
})

test('where no socket can be opened, locking goes on without wakes', async () => {
  const path = freshPath('locks.db')
  const store = await openSqlite(path)
  writeFileSync(`${path}-wakes-${userInfo().uid}`, 'in the way')
  vi.stubEnv('TMPDIR', join(root, 'nowhere'))
  await expect(store.listen?.(() => {})).rejects.toMatchObject({
    name: 'StoreError',
    code: 'store-unavailable',
  })
  const [mine, next] = [ticket(), ticket()]
  await store.acquire(mine)
  await store.acquire(next)
  await store.release({ key: mine.key, id: mine.id, cancel: false })
  expect(await store.renew([next])).toMatchObject([{ tag: 'held' }])
  // The next attempt to listen starts anew.
  rmSync(`${path}-wakes-${userInfo().uid}`)
  expect(await store.listen?.(() => {})).toBeTypeOf('function')
  await store.close()
  expect(existsSync(`${path}-wakes-${userInfo().uid}`)).toBe(false)
})

test('a user who may write the lock file may send wakes, and no other user', async () => {
  for (const mode of [0o600, 0o660]) {
    const path = freshPath('locks.db')
    const store = await openSqlite(path)
    chmodSync(path, mode)
    chmodSync(join(path, '..'), 0o775)
    await store.listen?.(() => {})
    expect(statSync(`${path}-wakes-${userInfo().uid}`).mode & 0o777).toBe(0o755)
    const [socket = ''] = readdirSync(`${path}-wakes-${userInfo().uid}`)
    expect(statSync(join(`${path}-wakes-${userInfo().uid}`, socket)).mode & 0o777).toBe(mode)
    await store.close()
    expect(existsSync(`${path}-wakes-${userInfo().uid}`)).toBe(false)
  }
})

test('a path too long for a socket does not keep wakes from flowing', async () => {
  const path = freshPath('d'.repeat(100), 'locks.db')
  const [one, other] = [await openSqlite(path), await openSqlite(path)]
  const [mine, next] = [ticket(), ticket()]
  const woken: string[] = []
  await other.listen?.((wake) => wake.tag !== 'all' && woken.push(wake.id))
  await one.acquire(mine)
  await other.acquire(next)
  await one.release({ key: mine.key, id: mine.id, cancel: false })
  await until('the next one is woken', () => woken.includes(next.id))
  await one.close()
  await other.close()
})

test('without any SQLite the sentence names what to install', async () => {
  const folder = freshPath()
  cpSync(new URL('../../../src', import.meta.url), join(folder, 'src'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const script = `
    const { sqliteStore } = await import(${JSON.stringify(join(folder, 'src/stores/sqlite/index.ts'))})
    const store = sqliteStore({ path: ${JSON.stringify(join(folder, 'locks.db'))}, engine: '@photostructure/sqlite' })
    try { store.release({ key: 'key', id: 'id', cancel: false }) } catch ({ code, message }) { console.log(code, message) }`
  const output = execFileSync(
    process.execPath,
    ['--import', 'tsx', '--input-type=module', '--eval', script],
    { encoding: 'utf8' },
  )
  expect(output).toBe(
    'store-refused The sqlite store needs Node.js 22.16 or newer, or the package @photostructure/sqlite: `npm install @photostructure/sqlite@1`.\n',
  )
  expect(readdirSync(folder).sort()).toEqual(['package.json', 'src'])
})

test('a value that is not the path of a file is refused at once', () => {
  const expected: [unknown, string][] = [
    ['', 'Expected `path` to be the path of a file, got "".'],
    [undefined, 'Expected `path` to be the path of a file, got undefined.'],
    [7, 'Expected `path` to be the path of a file, got 7.'],
    ['a\0b', 'Expected `path` to be the path of a file, got "a\\u0000b".'],
    [
      ':memory:',
      'Expected `path` to be the path of a file, got ":memory:". For locks inside one process use memoryStore() or `memory:`.',
    ],
    ['sqlite:./locks.db', 'Expected `path` to be a plain path, got the URL "sqlite:./locks.db".'],
    [
      '~/locks.db',
      'Expected `path` to be the path of a file, got "~/locks.db". Only a shell knows what ~ is: use the path itself, or homedir() of node:os.',
    ],
  ]
  for (const [path, message] of expected) {
    expect(() => sqliteStore({ path: path as string })).toThrow(
      expect.objectContaining({ name: 'InvalidArgumentError', message }),
    )
  }
  for (const nothing of [undefined, null, 7, true]) {
    expect(() => sqliteStore(nothing as never)).toThrow('Expected `path` to be the path of a file, got ')
  }
  expect(() => sqliteStore({ path: 'locks.db', ttl: 5 } as never)).toThrow(
    'Expected the options to be among `path`, `engine`, `now`, `boot`, got `ttl`.',
  )
  expect(() => sqliteStore({ path: 'locks.db', engine: 'better-sqlite3' as never })).toThrow(
    'Expected `engine` to be "node:sqlite" or "@photostructure/sqlite", got "better-sqlite3".',
  )
})

test('a relative path needs a working folder', () => {
  const [home, gone] = [process.cwd(), freshPath()]
  mkdirSync(gone)
  process.chdir(gone)
  rmSync(gone, { recursive: true })
  try {
    expect(() => sqliteStore('locks.db')).toThrow(
      'Expected `path` to be absolute, because the working folder is gone, got "locks.db".',
    )
  } finally {
    process.chdir(home)
  }
})

test('the default file is in the folder for state of the user', () => {
  vi.stubEnv('XDG_STATE_HOME', '/state')
  expect(defaultSqlitePath()).toBe('/state/holdfast/locks.db')
  vi.stubEnv('HOME', '/users/somebody')
  for (const unset of ['', 'relative']) {
    vi.stubEnv('XDG_STATE_HOME', unset)
    expect(defaultSqlitePath()).toBe('/users/somebody/.local/state/holdfast/locks.db')
  }
  // One file for the user, and not one for each working folder.
  for (const unset of ['', 'relative']) {
    vi.stubEnv('HOME', unset)
    expect(defaultSqlitePath()).toBe(join(userInfo().homedir, '.local/state/holdfast/locks.db'))
  }
})

function hashOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}
