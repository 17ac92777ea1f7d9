import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { afterEach, expect, onTestFinished, test, vi } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { ended, StoreProcess, startProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'

const root = freshFolder()
const user = process.geteuid?.() ?? 0
const STRANGER = 65_534
let folders = 0

afterEach(() => vi.unstubAllEnvs())

/** A lock file in a folder of its own, and a folder for temporary files that no other user uses. */
async function freshStore(): Promise<{ path: string; wakes: string; temporary: string; store: Store }> {
  const folder = join(root, `${++folders}`)
  mkdirSync(join(folder, 'tmp'), { recursive: true })
  vi.stubEnv('TMPDIR', join(folder, 'tmp'))
  const path = join(folder, 'locks.db')
  const store = await openSqlite(path)
  onTestFinished(() => store.close())
  const temporary = join(folder, 'tmp', `holdfast-wakes-${user}`)
  return { path, wakes: `${path}-wakes-${user}`, temporary, store }
}

/** Makes a file as old as those that a dead process has left. */
function makeOld(path: string): void {
  const minuteAgo = Date.now() / 1000 - 60
  lutimesSync(path, minuteAgo, minuteAgo)
}

const ownName = (): string => `${randomBytes(8).toString('hex')}.sock`

/** A socket file without a listener, as a killed process leaves it. Its server removes the name that it had before. */
async function deadSocket(path: string): Promise<void> {
  const server = createServer()
  const before = join(root, `${++folders}.sock`)
  await new Promise<void>((resolve) => server.listen(before, resolve))
  renameSync(before, path)
  await new Promise((resolve) => server.close(resolve))
  makeOld(path)
}

async function listenAt(path: string): Promise<{ server: Server; heard: string[] }> {
  const heard: string[] = []
  const server = createServer((socket: Socket) => {
    heard.push('connected')
    socket.setEncoding('utf8').on('data', (text: string) => heard.push(text))
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => void server.close())
  return { server, heard }
}

test('a link in the place of the folder for sockets is refused, and nothing is removed where it leads', async () => {
  const { wakes, temporary, store } = await freshStore()
  const victim = join(root, `${++folders}`)
  mkdirSync(victim)
  const files = ['letter.txt', 'a'.repeat(16), ownName()]
  for (const name of files) {
    writeFileSync(join(victim, name), 'precious')
    makeOld(join(victim, name))
  }
  const dead = ownName()
  await deadSocket(join(victim, dead))
  symlinkSync(victim, wakes)
  symlinkSync(victim, temporary)
  await expect(store.listen?.(() => {})).rejects.toMatchObject({
    name: 'StoreError',
    code: 'store-unavailable',
    message: `No socket can be opened for wakes, so waiters ask now and then instead. Expected "${wakes}" to be a folder, got a link or a file: remove it.`,
  })
  await someTurns()
  expect(readdirSync(victim).sort()).toEqual([...files, dead].sort())
})

test('in its folder a process removes its own dead sockets and nothing else', async () => {
  const { wakes, store } = await freshStore()
  mkdirSync(wakes)
  const dead = join(wakes, ownName())
  await deadSocket(dead)
  const fresh = join(wakes, ownName())
  await deadSocket(fresh)
  utimesSync(fresh, new Date(), new Date())
  const foreignName = join(wakes, 'dead.sock')
  await deadSocket(foreignName)
  const foreignOwner = join(wakes, ownName())
  await deadSocket(foreignOwner)
  lchownSync(foreignOwner, STRANGER, STRANGER)
  makeOld(foreignOwner)
  const file = join(wakes, ownName())
  writeFileSync(file, 'precious')
  makeOld(file)
  const elsewhere = join(root, `${++folders}`)
  await deadSocket(elsewhere)
  const link = join(wakes, ownName())
  symlinkSync(elsewhere, link)
  makeOld(link)
  const unlisten = await store.listen?.(() => {})
  await until('its own dead socket is gone', () => !existsSync(dead))
  await someTurns()
  const left = readdirSync(wakes).map((name) => join(wakes, name))
  expect(left).toEqual(expect.arrayContaining([fresh, foreignName, foreignOwner, file, link]))
  // The open socket of the process itself is there, too.
  expect(left).toHaveLength(6)
  expect(existsSync(elsewhere)).toBe(true)
  unlisten?.()
})

test.each([
  ['another user owns', (folder: string) => chownSync(folder, STRANGER, STRANGER), 'another user'],
  ['others may write to', (folder: string) => chmodSync(folder, 0o777), 'others may write to'],
  ['its group may write to', (folder: string) => chmodSync(folder, 0o770), 'others may write to'],
])('a folder for sockets that %s is refused, wherever it lies', async (_, spoil, complaint) => {
  const { wakes, temporary, store } = await freshStore()
  for (const folder of [wakes, temporary]) {
    mkdirSync(folder)
    await deadSocket(join(folder, ownName()))
    spoil(folder)
  }
  const before = [wakes, temporary].map((folder) => readdirSync(folder))
  await expect(store.listen?.(() => {})).rejects.toMatchObject({
    name: 'StoreError',
    code: 'store-unavailable',
    message: expect.stringContaining(complaint),
  })
  await someTurns()
  expect([wakes, temporary].map((folder) => readdirSync(folder))).toEqual(before)
})

test('where the folder beside the file is refused, wakes go by a folder of this user among the temporary files', async () => {
  const { path, wakes, temporary, store } = await freshStore()
  symlinkSync(root, wakes)
  const woken: string[] = []
  await store.listen?.((wake) => wake.tag !== 'all' && woken.push(wake.id))
  expect(statSync(temporary)).toMatchObject({ uid: user })
  expect(statSync(temporary).mode & 0o777).toBe(0o755)
  const other = await StoreProcess.start(path)
  const [mine, next] = [ticket(), ticket()]
  expect(await other.acquire(mine)).toMatchObject({ tag: 'held' })
  expect(await store.acquire(next)).toMatchObject({ tag: 'queued' })
  await other.release({ key: mine.key, id: mine.id, cancel: false })
  await until('the next one is woken', () => woken.includes(next.id))
})

test('a process of another user who may write the file wakes the next waiter', async () => {
  const { path, store } = await freshStore()
  chmodSync(root, 0o755)
  chmodSync(dirname(path), 0o777)
  for (const suffix of ['', '-wal', '-shm']) chmodSync(path + suffix, 0o666)
  const woken: string[] = []
  await store.listen?.((wake) => wake.tag !== 'all' && woken.push(wake.id))
  const child = startProcess(
    new URL('processes/release-and-end.ts', import.meta.url),
    ...[path, 'end', String(STRANGER)],
  )
  const end = ended(child)
  await Promise.race([new Promise((resolve) => child.once('message', resolve)), end])
  const next = ticket()
  expect(await store.acquire(next)).toMatchObject({ tag: 'queued' })
  await until('the next one is woken', () => woken.includes(next.id))
  expect(await end).toEqual({ code: 0, signal: null, output: '' })
})

test('an address in a row is a name in our folder, and never a path, a link or a port', async () => {
  const { path, wakes, store } = await freshStore()
  const tcp = createServer((socket) => {
    heardByPort.push('connected')
    socket.on('error', () => {})
  })
  const heardByPort: string[] = []
  await new Promise<void>((resolve) => tcp.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void tcp.close())
  const { port } = tcp.address() as { port: number }
  const outside = join(root, `${++folders}`)
  const { heard } = await listenAt(outside)
  const inside = await listenAt(join(dirname(path), ownName()))
  // A row that stays as it is, for the fields that the test does not choose.
  const holder = ticket()
  await store.acquire(holder)
  mkdirSync(wakes, { recursive: true })
  const link = ownName()
  symlinkSync(outside, join(wakes, link))
  const file = openDatabase(path, undefined)
  onTestFinished(() => file.close())
  const addresses = [
    String(port),
    outside,
    `beside-${user}-../../${outside}`,
    `beside-${user}-${link.slice(0, 16)}`,
    `beside-../x-${link.slice(0, 16)}`,
    `@${outside}`,
    '\0abstract',
  ]
  for (const address of addresses) {
    const next = ticket()
    await store.acquire(next)
    file.prepare('UPDATE waiter SET inbox = ? WHERE id = ?').run(address, next.id)
    await store.release({ key: holder.key, id: holder.id, cancel: false })
    expect(await store.renew([next]), address).toMatchObject([{ tag: 'held' }])
    Object.assign(holder, next)
  }
  await store.close()
  await someTurns()
  expect([heard, inside.heard, heardByPort]).toEqual([[], [], []])
})

test('a lock path that is a link to nothing is refused, and nothing is made where it leads', async () => {
  const folder = join(root, `${++folders}`)
  mkdirSync(folder)
  const [link, target] = [join(folder, 'locks.db'), join(folder, 'target.db')]
  symlinkSync(target, link)
  await expect(openSqlite(link)).rejects.toMatchObject({
    name: 'StoreError',
    code: 'store-refused',
    message: `Expected the lock file "${link}" to be a file or no file yet, got a link to nothing. Remove the link, or name the file itself.`,
  })
  expect(readdirSync(folder)).toEqual(['locks.db'])
})

test('a lock path that is the link of another user is refused', async () => {
  const folder = join(root, `${++folders}`)
  mkdirSync(folder)
  const [link, target] = [join(folder, 'locks.db'), join(folder, 'target.db')]
  await (await openSqlite(target)).close()
  const before = readFileSync(target)
  symlinkSync(target, link)
  lchownSync(link, STRANGER, STRANGER)
  await expect(openSqlite(link)).rejects.toMatchObject({
    name: 'StoreError',
    code: 'store-refused',
    message: `Expected the lock file "${link}" to be a file or a link of this user, got the link of another user. Name the file itself.`,
  })
  expect(readFileSync(target)).toEqual(before)
})

test.each(['-wal', '-shm', '-journal'])(
  'a link in the place of SQLite’s own %s is refused',
  async (suffix) => {
    const folder = join(root, `${++folders}`)
    mkdirSync(folder)
    const path = join(folder, 'locks.db')
    const victim = join(folder, 'victim')
    symlinkSync(victim, path + suffix)
    await expect(openSqlite(path)).rejects.toMatchObject({
      name: 'StoreError',
      code: 'store-refused',
      message: `Expected "${path}${suffix}" to be a file of SQLite or no file, got a link. Remove the link.`,
    })
    expect(existsSync(victim)).toBe(false)
    rmSync(path + suffix)
    await (await openSqlite(path)).close()
  },
)

test('a process that names the file by a link and one that names it itself hear of each other', async () => {
  const { path, store } = await freshStore()
  const link = join(root, `${++folders}.db`)
  symlinkSync(path, link)
  const other = await StoreProcess.start(link)
  const woken: string[] = []
  await store.listen?.((wake) => wake.tag !== 'all' && woken.push(wake.id))
  const [mine, next, last] = [ticket(), ticket(), ticket()]
  expect(await other.acquire(mine)).toMatchObject({ tag: 'held' })
  expect(await store.acquire(next)).toMatchObject({ tag: 'queued' })
  expect(await other.acquire(last)).toMatchObject({ tag: 'queued' })
  await other.release({ key: mine.key, id: mine.id, cancel: false })
  await until('this process is woken', () => woken.includes(next.id))
  await store.release({ key: next.key, id: next.id, cancel: false })
  await until('the other one is woken', () => other.woken.includes(last.id))
})

/** Enough time for everything that has begun to reach the file system and the sockets of this process. */
async function someTurns(): Promise<void> {
  for (let turns = 0; turns < 100; turns += 1) await new Promise((resolve) => setTimeout(resolve, 1))
}
