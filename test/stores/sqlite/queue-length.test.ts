import { expect, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import { freshFolder } from './lock-folder.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()

test('a waiter that joins does not count those in front of it, and one that comes back does', async () => {
  const path = `${folder}/joins.db`
  const store = await openSqlite(path)
  const [first, second] = [ticket(), ticket()]
  for (const each of [ticket(), first, second]) await store.acquire(each)
  const file = openDatabase(path, undefined)
  // Who counts would find two.
  file.exec('UPDATE queue SET length = 1000000')
  file.close()
  expect(await store.acquire(ticket())).toMatchObject({ tag: 'queued', ahead: 1_000_000 })
  expect(await store.acquire(first)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await store.acquire(second)).toMatchObject({ tag: 'queued', ahead: 1 })
  await store.close()
})

test('the length of a queue is right whichever way its waiters leave', async () => {
  let ms = 1_000_000
  const path = `${folder}/leave.db`
  const options = { path, now: () => ({ ms, us: ms * 1_000 }) }
  const store = await openSqlite({ ...options, boot: 'one' })
  const ahead: number[] = []
  const joined = async (draft: Partial<Ticket> = {}): Promise<Ticket> => {
    const mine = ticket(draft)
    const answer = await store.acquire(mine)
    ahead.push(answer.tag === 'queued' ? answer.ahead : -1)
    return mine
  }
  const holder = await joined({ ttlMs: 1_000_000 })
  const next = await joined()
  const cancelled = await joined()
  await joined({ patienceMs: 10 })
  const evicted = await joined()
  const members = [await joined(), await joined(), await joined(), await joined()]
  await store.release({ ...cancelled, cancel: true })
  await joined()
  await store.evict({ ...evicted, reason: 'a test' })
  await joined()
  await store.renew(members)
  await store.release({ key: 'key', id: members[1]?.id ?? '', cancel: true })
  await joined()
  await store.release({ ...holder, cancel: false })
  await joined()
  // The next in the queue is forgotten by then.
  ms += 10
  await store.release({ ...next, cancel: false })
  await joined()
  expect(ahead).toEqual([-1, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 6])
  await store.evict({ key: 'key', id: undefined, reason: 'a test' })
  expect(lengthsIn(path)).toEqual([])
  for (const _ of [1, 2, 3]) await joined()
  expect(lengthsIn(path)).toEqual([{ key: 'key', length: 2 }])
  await store.close()
  ms = 0
  await (await openSqlite({ ...options, boot: 'two' })).close()
  expect(lengthsIn(path)).toEqual([])
})

function lengthsIn(path: string): unknown[] {
  const file = openDatabase(path, undefined)
  const rows = file.prepare('SELECT * FROM queue').all()
  file.close()
  return rows
}
