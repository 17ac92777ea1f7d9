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

/** The holder of this room dies, too, but a waiter is left. Its own call has to let it in. */
async function heldAndWaitedFor(store: Store): Promise<ReturnType<typeof ticket>> {
  await store.acquire(ticket({ key: 'waited for', ttlMs: 1_000 }))
  const waiting = ticket({ key: 'waited for', patienceMs: 10_000_000 })
  await store.acquire(waiting)
  return waiting
}

async function goOn(store: Store, cycles: number): Promise<void> {
  for (let cycle = 0; cycle < cycles; cycle += 1) {
    const mine = ticket()
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
