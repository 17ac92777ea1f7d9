import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { Inbox } from '../../../src/stores/sqlite/inbox.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import type { Notice } from '../../../src/stores/sqlite/room-window.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { cpuMs } from '../../base/measured.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { StoreProcess, startProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'

const USER = process.geteuid?.()
const folder = freshFolder()
let files = 0
function freshPath(): string {
  files += 1
  const path = join(folder, `${files}`, 'locks.db')
  mkdirSync(dirname(path))
  return path
}

test('a frozen process that can take no more connections is not taken for a dead one', async () => {
  const lockFile = freshPath()
  writeFileSync(lockFile, '')
  mkdirSync(`${lockFile}-wakes-${USER}`)
  const path = `${lockFile}-wakes-${USER}/0123456789abcdef.sock`
  const program = `require('net').createServer().listen({ path: ${JSON.stringify(path)} }, () => console.log('up'))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  await once(child.stdout, 'data')
  child.kill('SIGSTOP')
  await until('nobody can connect any more', () => refused(path), { everyMs: 0 })

  const { unheard, tell } = teller(lockFile)
  await tell(`beside-${USER}-0123456789abcdef`)
  expect(unheard).toEqual([])
})

/** Opens one more connection, and keeps it. */
async function refused(path: string): Promise<boolean> {
  const socket = connect({ path })
  onTestFinished(() => {
    socket.destroy()
  })
  const code = await new Promise((resolve) => {
    socket.once('connect', () => resolve(undefined))
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code))
  })
  if (code !== undefined) expect(code).toBe('EAGAIN')
  return code !== undefined
}

test('a socket that this user may not write to says nothing about its process', async () => {
  const lockFile = freshPath()
  writeFileSync(lockFile, '')
  const listening = new Inbox(lockFile, async () => {})
  onTestFinished(() => listening.close())
  await listening.listen(() => {})
  const wakes = `${lockFile}-wakes-${USER}`
  chmodSync(folder, 0o755)
  chmodSync(join(wakes, readdirSync(wakes)[0] ?? ''), 0)
  const { unheard, tell } = teller(lockFile)
  // No permission stops root.
  if (USER === 0) process.seteuid?.(65534)
  try {
    await tell(listening.address)
  } finally {
    if (USER === 0) process.seteuid?.(0)
  }
  expect(unheard).toEqual([])
})

function teller(lockFile: string): { unheard: Notice[]; tell: (inbox: string) => Promise<unknown> } {
  const unheard: Notice[] = []
  const inbox = new Inbox(lockFile, async (notice) => {
    unheard.push(notice)
  })
  onTestFinished(() => inbox.close())
  const tell = async (address: string) => {
    await inbox.tell([{ key: 'key', wake: { tag: 'ticket', id: 'id' }, inbox: address }])
    // A verdict would come with the end of the connection, a few turns of the event loop later.
    await pause(200)
  }
  return { unheard, tell }
}

test('a living process without a free file descriptor keeps its place in the queue', async () => {
  const path = freshPath()
  const { store } = await openStore(path)
  const [held, behind] = [ticket(), ticket()]
  await store.acquire(held)
  const child = startProcess(new URL('processes/wait-without-descriptors.ts', import.meta.url), path)
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  await untilQueued(store, 1)
  const full = once(child, 'message')
  child.send('fill')
  expect((await full)[0]).toBe('full')
  await store.acquire(behind)
  const holds = once(child, 'message')
  await store.release({ key: 'key', id: held.id, cancel: false })
  expect((await holds)[0]).toBe('holds')
  expect((await store.renew([behind]))[0]).toMatchObject({ tag: 'queued' })
})

test('a process that is killed before it read its wake is passed long before its acceptance term is over', async () => {
  const path = freshPath()
  const { store, woken } = await openStore(path)
  const child = await StoreProcess.start(path)
  // With a lock-delay, the message to the process is no lease. So the key is only offered.
  const offered = ticket({ lockDelayMs: 1 })
  const [first, its, second, behind] = [ticket(), ticket(), ticket(), ticket()]
  await store.acquire(first)
  await child.acquire(its)
  await store.release({ key: 'key', id: first.id, cancel: false })
  await until('there is a connection', () => child.woken.includes(its.id))
  await child.release({ key: 'key', id: its.id, cancel: false })
  for (const each of [second, behind]) {
    await store.acquire(each)
    if (each === second) await child.acquire(offered)
  }
  child.child.kill('SIGSTOP')
  await store.release({ key: 'key', id: second.id, cancel: false })
  await child.kill()
  await until('the one behind is woken', () => woken.includes(behind.id), { withinMs: behind.acceptMs / 2 })
})

test('thousands of waiters of a killed process on one key cost a release one step', async () => {
  const path = freshPath()
  const { store, woken } = await openStore(path)
  const [held, behind] = [ticket({ key: 'k' }), ticket({ key: 'k' })]
  await store.acquire(held)
  const program = new URL('../../processes/waiters-process.ts', import.meta.url)
  const child = startProcess(program, `sqlite:${path}`, 'k', '2000', '30000')
  // More waiters could not all ask again within their patience of six seconds on a busy machine.
  await untilQueued(store, 2000)
  await until('all can be told', () => countIn(path, "waiter WHERE inbox = ''") === 0, { everyMs: 100 })
  await until('all are in groups', () => countIn(path, "waiter WHERE group_name = ''") === 0, {
    everyMs: 100,
  })
  await store.acquire(behind)
  child.kill('SIGKILL')
  await once(child, 'exit')
  const begun = cpuMs()
  await store.release({ key: 'k', id: held.id, cancel: false })
  await until('the one behind is woken', () => woken.includes(behind.id))
  // The release took 6 ms when it was measured. With a transaction and a connection for each waiter it would take
  // hundreds.
  expect(cpuMs() - begun).toBeLessThan(100)
  expect(await room(store)).toMatchObject({ holders: [{ id: behind.id }], queue: [] })
  expect(countIn(path, 'wait_group')).toBe(0)
})

/** How many rows a part of the file has. Without an inbox are the tickets that the store has not heard of since their process listens. */
function countIn(path: string, part: string): number {
  const file = openDatabase(path, undefined)
  try {
    return file.prepare(`SELECT 1 FROM ${part}`).all().length
  } finally {
    file.close()
  }
}

async function openStore(path: string): Promise<{ store: Store; woken: string[] }> {
  const store = await openSqlite(path)
  onTestFinished(() => store.close())
  const woken: string[] = []
  await store.listen?.((wake) => {
    if (wake.tag !== 'all') woken.push(wake.id)
  })
  return { store, woken }
}

async function room(store: Store) {
  return (await store.inspect({ prefix: 'k', cursor: undefined, count: 1 })).rooms[0]
}

async function untilQueued(store: Store, count: number): Promise<void> {
  await until(`${count} are in the queue`, async () => (await room(store))?.queue.length === count, {
    everyMs: 100,
  })
}
