import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import type { StoreTime } from '../../../src/law/room.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'
import type { SqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { lawComparison } from '../../../src/testing/index.ts'
import { withEdits } from '../../simulation/mutation.ts'
import { fenceOf, releaseOf } from '../tickets.ts'
import { engines, freshFolder } from './lock-folder.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()
const [engine = '@photostructure/sqlite'] = engines

const SQL = 'stores/sqlite/sql/scripts.generated.ts'
const LONE = 'stores/sqlite/lone-ticket.ts'

const TAKING = 'SELECT 1 FROM meta WHERE clock_ms = ?12 AND clock_us = ?13'
const OTHERS = 'AND NOT EXISTS (SELECT 1 FROM holder WHERE key = ?1)'
const CLOSED = 'AND NOT EXISTS (SELECT 1 FROM closure WHERE key = ?1)'
const BURIED = 'AND NOT EXISTS (SELECT 1 FROM tombstone WHERE key = ?1 AND id = ?2 AND until > ?9)'
const WAITERS = 'AND NOT EXISTS (SELECT 1 FROM waiter WHERE key = ?1)'

/** Each condition of the short way, left out. */
const mistakes: readonly (readonly [mistake: string, file: string, find: string, replace: string])[] = [
  ['a key that others hold is taken', SQL, `${OTHERS}\n`, '\n'],
  ['a newcomer overtakes the queue', SQL, `${WAITERS}\n    ${CLOSED}`, CLOSED],
  ['a key is taken within a lock-delay', SQL, `${CLOSED}\n`, '\n'],
  ['a ticket that was evicted takes the key', SQL, `${BURIED}\n`, '\n'],
  ['a fence is computed from an earlier moment', SQL, TAKING, 'SELECT 1 WHERE ?12 = ?12 AND ?13 = ?13'],
  ['the minimum hold is forgotten', LONE, 'minHoldMs > 0 ? ms + minHoldMs : 0', '0'],
  ['a lease ends before its minimum hold', LONE, 'Math.max(ms + ttlMs, holdUntil)', 'ms + ttlMs'],
  ['a ticket that can never hold holds', LONE, '|| units > limit', ''],
  ['a tombstone is not left', LONE, '|| cancel', ''],
  ['nobody is let in after a release', SQL, `fence < ?4\n  ${WAITERS}`, 'fence < ?4'],
  ['an expired holder is released', SQL, 'AND expires_at > ?3 AND', 'AND'],
  ['a minimum hold is cut short', SQL, ' AND hold_until <= ?3', ''],
  ['a fence is given twice', SQL, 'AND fence < ?4', 'AND ?4 = ?4'],
]

describe('a check notices that', () => {
  test.for(mistakes)('%s', async ([, file, find, replace]) => {
    await expect(checked([{ file, find, replace }])).rejects.toMatchObject({ code: 'ERR_ASSERTION' })
  })
})

test('nothing is wrong with a copy of the store', async () => {
  await checked([])
})

async function checked(edits: Parameters<typeof withEdits>[0]['edits']): Promise<void> {
  await withEdits({ modules: ['stores/sqlite/sqlite-store'], edits }, async (copy) => {
    const { SqliteStore } = await import(`${copy}/stores/sqlite/sqlite-store.js`)
    await rareRooms(SqliteStore)
    await clockSetForward(SqliteStore)
    await clockSetBack(SqliteStore)
    await followsTheLaw(SqliteStore)
  })
}

async function followsTheLaw(Store: typeof SqliteStore): Promise<void> {
  let ms = 0
  const path = `${folder}/${crypto.randomUUID()}.db`
  const options = { path, engine, boot: 'simulated', now: () => ({ ms, us: ms * 1000 }) }
  // See law-comparison.test.ts.
  const store = new Store(options, { leastGroup: Number.POSITIVE_INFINITY })
  const setTime = (to: number) => {
    ms = to
  }
  try {
    await lawComparison({ store, setTime, grants: true, histories: 1_000, seed: 'lone' })
  } finally {
    await store.close()
  }
}

/** Rooms that no history has: a person deleted a row, or the ticket is one that the engine would refuse. */
async function rareRooms(Store: typeof SqliteStore): Promise<void> {
  const path = `${folder}/${crypto.randomUUID()}.db`
  const store = new Store({ path, engine, boot: 'simulated', now: () => ({ ms: 0, us: 1 }) })
  try {
    await store.acquire(ticket({ key: 'queue' }))
    await store.acquire(ticket({ key: 'queue' }))
    const database = openDatabase(path, engine)
    database.exec('DELETE FROM holder')
    database.close()
    const newcomer = await store.acquire(ticket({ key: 'queue', patienceMs: 0 }))
    assert.equal(newcomer.tag, 'busy', 'a newcomer does not overtake a waiter')
    const wide = await store.acquire(ticket({ key: 'free', units: 2, patienceMs: 0 }))
    assert.equal(wide.tag, 'busy', 'a ticket of more units than it tolerates never holds')
  } finally {
    await store.close()
  }
}

/** A process that knows an earlier moment releases a ticket just after the wall clock was set forward. */
async function clockSetForward(Store: typeof SqliteStore): Promise<void> {
  let time: StoreTime = { ms: 0, us: 1_000_000 }
  const options = { path: `${folder}/${crypto.randomUUID()}.db`, engine, boot: 'simulated', now: () => time }
  const [late, other] = [new Store(options), new Store(options)]
  try {
    await late.acquire(ticket({ key: 'a' }))
    time = { ms: 2000, us: 1_000_000 }
    const first = ticket({ key: 'b' })
    const fence = fenceOf(await other.acquire(first))
    time = { ms: 2000, us: 9_000_000 }
    await late.release(releaseOf(first))
    const next = fenceOf(await other.acquire(ticket({ key: 'b' })))
    assert.ok(next > fence, 'the next fence is higher')
  } finally {
    await late.close()
    await other.close()
  }
}

/** The wall clock is set forward and back again while the moment that a process knows is over. */
async function clockSetBack(Store: typeof SqliteStore): Promise<void> {
  let time: StoreTime = { ms: 0, us: 1_000_000 }
  const path = `${folder}/${crypto.randomUUID()}.db`
  const store = new Store({ path, engine, boot: 'simulated', now: () => time })
  try {
    await store.acquire(ticket({ key: 'a' }))
    time = { ms: 2000, us: 9_000_000 }
    const first = ticket({ key: 'b' })
    const fence = fenceOf(await store.acquire(first))
    time = { ms: 2001, us: 9_001_000 }
    await store.release(releaseOf(first))
    time = { ms: 2002, us: 1_000_000 }
    assert.ok(fenceOf(await store.acquire(ticket({ key: 'b' }))) > fence, 'the next fence is higher')
  } finally {
    await store.close()
  }
}
