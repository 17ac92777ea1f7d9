import { readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { shortestMs } from '../../base/measured.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { ended, StoreProcess, startProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'
import { turnsIn } from './turns.ts'

const folder = freshFolder()
let files = 0
function freshPath(): string {
  files += 1
  return join(folder, `${files}`, 'locks.db')
}

test('the next one is woken in its own process, in order of arrival, long before it would ask', async () => {
  const path = freshPath()
  const processes = await Promise.all([1, 2, 3].map(() => StoreProcess.start(path)))
  const tickets = processes.map(() => ticket())
  for (const [index, process] of processes.entries()) {
    const answer = await process.acquire(tickets[index] ?? ticket())
    expect(answer).toMatchObject(index === 0 ? { tag: 'held' } : { tag: 'queued', ahead: index - 1 })
    if (answer.tag === 'queued') expect(answer.askAgainMs).toBeGreaterThan(10_000)
  }
  for (const [index, { key, id }] of tickets.entries()) {
    const next = processes[index + 1]
    await processes[index]?.release({ key, id, cancel: false })
    if (next === undefined) break
    const nextTicket = tickets[index + 1] ?? ticket()
    await until('the next one is woken', () => next.woken.includes(nextTicket.id))
    expect(await next.renew([nextTicket])).toMatchObject([{ tag: 'held' }])
  }
  expect(processes.map(({ woken }) => woken)).toEqual([[], [tickets[1]?.id], [tickets[2]?.id]])
})

test('a killed holder costs its ttl, a killed head of the queue its acceptance term', async () => {
  const path = freshPath()
  const [holder, head, next] = await Promise.all([1, 2, 3].map(() => StoreProcess.start(path)))
  const [dead, deadHead, last] = [ticket({ ttlMs: 3000 }), ticket({ acceptMs: 3000 }), ticket()]
  expect(await holder?.acquire(dead)).toMatchObject({ tag: 'held' })
  expect(await head?.acquire(deadHead)).toMatchObject({ tag: 'queued' })
  expect(await next?.acquire(last)).toMatchObject({ tag: 'queued' })
  await holder?.kill()
  await head?.kill()
  const startedAt = performance.now()
  await until('the last one holds', async () => (await next?.renew([last]))?.[0]?.tag === 'held')
  expect(performance.now() - startedAt).toBeLessThan(25_000)
})

test.each([
  ['that is renewed', true],
  ['that is not renewed', false],
])(
  'a holder that watches the signal of a lease %s hears at once that another process evicted it',
  async (_, renew) => {
    const path = freshPath()
    const operator = await StoreProcess.start(path)
    const locks = createLocks(sqliteStore(path), { ttl: '10m', renew })
    // No ticket of this process waited, so the process did not listen when it took the key.
    const lease = await locks.acquire('key')
    const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
    await until('it can be told', () => inboxesIn(path).every((inbox) => inbox !== ''))
    await operator.evict({ key: 'key', id: lease.id, reason: 'stuck since monday' })
    const evictedAt = performance.now()
    await lost
    // The next renewal would come in three minutes, or never.
    expect(performance.now() - evictedAt).toBeLessThan(30_000)
    expect(() => lease.assertHeld()).toThrow('stuck since monday')
    await locks.close()
  },
)

function inboxesIn(path: string): unknown[] {
  const file = openDatabase(path, undefined)
  try {
    return file
      .prepare('SELECT inbox FROM holder')
      .all()
      .map((row) => (row as { inbox: unknown }).inbox)
  } finally {
    file.close()
  }
}

test('processes that are killed at any moment break neither exclusion nor the order of fences', async () => {
  const path = freshPath()
  const record = join(folder, 'record')
  writeFileSync(record, '')
  const start = () => startProcess(new URL('processes/contend.ts', import.meta.url), path, record)
  const lines = () => readFileSync(record, 'utf8').trim().split('\n')
  const contenders = [start(), start(), start()]
  const killed = new Set<string>()
  for (let kills = 0; kills < 8; kills += 1) {
    const before = lines().length
    await until('the contenders are at work', () => lines().length > before + 50, { everyMs: 1 })
    const victim = contenders.shift()
    if (victim === undefined) break
    const exited = new Promise((resolve) => victim.once('exit', resolve))
    victim.kill('SIGKILL')
    await exited
    killed.add(String(victim.pid))
    contenders.push(start())
  }
  const exits = contenders.map(ended)
  for (const contender of contenders) contender.send('end')
  for (const exit of exits) expect(await exit).toEqual({ code: 0, signal: null, output: '' })

  expect(turnsIn(lines(), killed)).toBeGreaterThan(200)
  // Nothing is left behind, and the file is sound.
  const store = sqliteStore(path)
  await until('nobody is there any more', async () => {
    await store.release({ key: 'key', id: 'nobody', cancel: false })
    return (await store.inspect({ prefix: '', cursor: undefined, count: 9 })).rooms.length === 0
  })
  await store.close()
})

test('a process stopped in the middle of a transaction makes others wait a while, not hang', async () => {
  const path = freshPath()
  const store = sqliteStore(path)
  const mine = ticket()
  const answer = await store.acquire(mine)
  for (const signal of ['SIGCONT', 'SIGKILL'] as const) {
    const stopped = await StoreProcess.start(path)
    stopped.stopInTransaction()
    await until('the file is locked', async () => {
      const asked = store.renew([mine])
      return (
        asked instanceof Promise &&
        asked.then(
          () => false,
          () => true,
        )
      )
    })
    let most = 0
    // On a busy machine the event loop turns more slowly.
    for (let tries = 0; tries < 10 && most <= 100; tries += 1) {
      let turns = 0
      const ticking = setInterval(() => {
        turns += 1
      }, 1)
      await expect((async () => store.renew([mine]))()).rejects.toMatchObject({
        name: 'StoreError',
        code: 'store-unavailable',
        message: expect.stringMatching(
          /^Another process kept the lock file ".+" locked for 1000 ms\. If that process was stopped/,
        ),
      })
      clearInterval(ticking)
      most = Math.max(most, turns)
    }
    expect(most).toBeGreaterThan(100)
    // The process never commits: either it dies, or it goes on, ends and rolls back.
    stopped.child.kill(signal)
    if (signal === 'SIGCONT') stopped.child.disconnect()
    const [again] = await until('the file is free', () =>
      Promise.resolve(store.renew([mine])).catch(() => undefined),
    )
    expect(again).toEqual(answer)
  }
  await store.close()
})

test('a process that holds, waits and listens ends when its work is done, and has printed nothing', async () => {
  const path = freshPath()
  const child = startProcess(new URL('processes/hold-and-end.ts', import.meta.url), path)
  expect(await ended(child)).toEqual({ code: 0, signal: null, output: '' })
  // The process did not even close its store, but no socket of it is left.
  expect(readdirSync(dirname(path)).filter((name) => !name.startsWith('locks.db'))).toEqual([])
  expect(readdirSync(dirname(path))).not.toContain(`locks.db-wakes-${process.geteuid?.()}`)
})

test.each(['end', 'exit', 'kill'])(
  'a process that releases its key as the last thing it does still wakes the next waiter: %s',
  async (how) => {
    // The connection of the wake keeps no process alive.
    expect(await shortestMs(3_000, () => lifeAfterRelease(how))).toBeLessThan(3_000)
  },
)

/** For how long a process lives on after it has woken the next waiter by its release. */
async function lifeAfterRelease(how: string): Promise<number> {
  const path = freshPath()
  const waiting = await StoreProcess.start(path)
  const child = startProcess(new URL('processes/release-and-end.ts', import.meta.url), path, how)
  const end = ended(child)
  const told: unknown[] = []
  child.on('message', (message) => told.push(message))
  await until('it holds', () => told.length > 0)
  const next = ticket()
  expect(await waiting.acquire(next)).toMatchObject({ tag: 'queued' })
  await until('the next one is woken', () => waiting.woken.includes(next.id))
  const wokenAt = performance.now()
  const ending = how === 'kill' ? { code: null, signal: 'SIGKILL' } : { code: 0, signal: null }
  expect(await end).toEqual({ ...ending, output: '' })
  // A timer would keep it alive until its end.
  if (how === 'end') expect(told.at(-1)).toEqual({ keepAlive: expect.not.arrayContaining(['Timeout']) })
  return performance.now() - wokenAt
}

test('the socket of a killed process is cleared away by the next one that listens', async () => {
  const path = freshPath()
  const sockets = () => readdirSync(`${path}-wakes-${process.geteuid?.()}`)
  const dead = await StoreProcess.start(path)
  const [left = ''] = sockets()
  await dead.kill()
  expect(sockets()).toEqual([left])
  // Only an old socket counts as dead. A fresh one may belong to a process that is just opening it.
  const minuteAgo = Date.now() / 1000 - 60
  utimesSync(join(`${path}-wakes-${process.geteuid?.()}`, left), minuteAgo, minuteAgo)
  await StoreProcess.start(path)
  await until('the dead socket is gone', () => !sockets().includes(left))
  expect(sockets()).toHaveLength(1)
})
