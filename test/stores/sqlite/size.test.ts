import { statSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { freshFolder } from './lock-folder.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()
setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

test('250,000 keys, taken and released, leave nothing in the file, nor in memory', async () => {
  const path = `${folder}/many.db`
  const store = await openSqlite(path)
  let heapBefore = 0
  for (let index = 0; index < 250_000; index += 1) {
    const mine = ticket({ key: `key:${index}` })
    // Both calls answer at once.
    void store.acquire(mine)
    void store.release({ key: mine.key, id: mine.id, cancel: false })
    if (index === 10_000) heapBefore = heapUsed()
  }
  expect(heapUsed() - heapBefore).toBeLessThan(3_000_000)
  expect(statSync(path).size).toBeLessThan(64 * 1_024)
  expect(statSync(`${path}-wal`).size).toBeLessThan(2 * 1_024 * 1_024)
  expect(rowsIn(path)).toBe(1)
  await store.close()
}, 300_000)

test('tickets of dead processes are swept by the living ones, whatever they are', async () => {
  let ms = 1_000_000
  const path = `${folder}/dead.db`
  const store = await openSqlite({ path, now: () => ({ ms, us: ms * 1_000 }), boot: 'test' })
  for (let index = 0; index < 1_000; index += 1) {
    const key = `dead:${index}`
    await store.acquire(ticket({ key, ttlMs: 1_000, lockDelayMs: index % 2 === 0 ? 5_000 : 0 }))
    await store.acquire(ticket({ key, patienceMs: 1_000 }))
    await store.release({ key: `cancelled:${index}`, id: 'late', cancel: true })
  }
  expect(rowsIn(path)).toBe(3_001)
  const waiting = await heldAndWaitedFor(store)
  ms += 700_000
  await goOn(store, 2_000)
  // One round turns a ticket that expired with a lock-delay into a closed key. The next round finds that the key is
  // open again.
  ms += 700_000
  await goOn(store, 2_000)
  expect(rowsIn(path)).toBe(3)
  expect(await store.renew([waiting])).toMatchObject([{ tag: 'held' }])
  await store.close()
})

test('waiters that died behind a living one are swept while the key is held, and no other waiter is', async () => {
  let ms = 1_000_000
  const path = `${folder}/dead-waiters.db`
  const store = await openSqlite({ path, now: () => ({ ms, us: ms * 1_000 }), boot: 'test' })
  await store.acquire(ticket({ ttlMs: 10_000_000 }))
  const living = ticket({ patienceMs: 10_000_000 })
  const groups = [1, 2].map(() => Array.from({ length: 4 }, () => ticket({ patienceMs: 1_000 })))
  const dead = Array.from({ length: 300 }, () => ticket({ patienceMs: 1_000 }))
  for (const each of [living, ...dead, ...groups.flat()]) await store.acquire(each)
  const [livingGroup = [], deadGroup = []] = groups
  for (const group of groups) await store.renew(group)
  ms += 300_000
  await store.renew(livingGroup)
  ms += 200_000
  await goOn(store, 1_000)
  // The other processes may be slow, or have been stopped for some minutes.
  expect(queueIn(path)).toHaveLength(309)
  ms += 200_000
  await goOn(store, 1_000)
  expect(queueIn(path)).toEqual([living, ...livingGroup].map(({ id }) => id))
  expect(await store.renew(livingGroup)).toMatchObject(livingGroup.map(() => ({ tag: 'queued' })))
  expect(await store.renew(deadGroup)).toMatchObject(deadGroup.map(() => ({ tag: 'gone' })))
  // The file's own row, the holder, the waiters and their group.
  expect(rowsIn(path)).toBe(8)
  await store.close()
})

/** Also those that are no longer remembered, which `inspect` leaves out. */
function queueIn(path: string): unknown[] {
  const database = openDatabase(path, undefined)
  const waiters = database.prepare('SELECT id FROM waiter ORDER BY place').all() as { id: string }[]
  database.close()
  return waiters.map(({ id }) => id)
}

/** The holder of this room dies, too, but a waiter is left. Its own call has to let it in. */
async function heldAndWaitedFor(store: Store): Promise<ReturnType<typeof ticket>> {
  await store.acquire(ticket({ key: 'waited for', ttlMs: 1_000 }))
  const waiting = ticket({ key: 'waited for', patienceMs: 10_000_000 })
  await store.acquire(waiting)
  return waiting
}

async function goOn(store: Store, cycles: number): Promise<void> {
  for (let cycle = 0; cycle < cycles; cycle += 1) {
    const mine = ticket({ key: 'goes on' })
    expect(await store.acquire(mine)).toMatchObject({ tag: 'held' })
    await store.release({ key: mine.key, id: mine.id, cancel: false })
  }
}

/** One row is that of the file itself. */
function rowsIn(path: string): number {
  const tables = ['meta', 'holder', 'waiter', 'wait_group', 'tombstone', 'closure']
  const database = openDatabase(path, undefined)
  const counts = tables.map(
    (table) => database.prepare(`SELECT count(*) AS rows FROM ${table}`).get() as { rows: number },
  )
  database.close()
  return counts.reduce((sum, { rows }) => sum + rows, 0)
}

function heapUsed(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}
