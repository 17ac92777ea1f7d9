import { rmSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { expect, onTestFinished } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { openDatabase, type SqliteEngine } from '../../../src/stores/sqlite/sqlite-engine.ts'
import type { SqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf } from '../tickets.ts'
import { ticket } from './tickets.ts'

interface GroupCase {
  readonly name: string
  readonly run: () => Promise<void>
}

/** Where the cases play. `SqliteStore` may be a copy with a mistake in it. */
export interface GroupStage {
  readonly SqliteStore: typeof SqliteStore
  readonly engine: SqliteEngine
  readonly folder: string
}

/** What waiters in groups are owed, case by case. */
export function groupCases(stage: GroupStage): readonly GroupCase[] {
  const { SqliteStore, engine } = stage
  const cases: GroupCase[] = []
  const add = (name: string, run: () => Promise<void>): void => {
    cases.push({ name, run })
  }

  for (const size of [10, 250]) {
    add(`${size} waiters are remembered by one row`, async () => {
      const { store, pass, rows } = clockedStore(stage)
      const { waiters } = await newGroup(store, size)
      const before = rows('SELECT id, heard_at, remembered_until FROM waiter')
      const known = waiters.map(({ id }) => id)
      for (let round = 0; round < 5; round += 1) {
        pass(100_000)
        expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
        expect(await queueOf(store)).toEqual(known)
      }
      expect(rows('SELECT id, heard_at, remembered_until FROM waiter')).toEqual(before)
      expect(rows('SELECT size, changed, heard_at FROM wait_group')).toEqual([
        { size, changed: 0, heard_at: 500_000 },
      ])
    })
  }

  add('each way to leave a group ends it, and the others become a new one', async () => {
    const ways: Readonly<Record<string, (scene: Group & { store: Store }) => Promise<unknown>>> = {
      'gives up': async ({ store, waiters }) => store.release(releaseOf(waiters[3] as Ticket)),
      'is evicted': async ({ store, waiters }) =>
        store.evict({ key: 'key', id: waiters[3]?.id, reason: 'a test' }),
      'is admitted': async ({ store, holder }) => store.release(releaseOf(holder)),
      'is admitted by the question': async ({ pass }) => pass(HOLDER_MS),
    }
    for (const [name, leave] of Object.entries(ways)) {
      const { store, pass, rows } = clockedStore(stage)
      const { holder, waiters } = await newGroup(store, 10, { ttlMs: 200_000 }, { ttlMs: HOLDER_MS })
      await leave({ store, holder, waiters, pass })
      const left = name.startsWith('is admitted') ? waiters[0] : waiters[3]
      const answers = await store.renew(waiters)
      for (const [at, { tag }] of answers.entries()) {
        const expected = waiters[at] !== left ? 'queued' : name.startsWith('is admitted') ? 'held' : 'gone'
        expect({ name, at, tag }).toEqual({ name, at, tag: expected })
      }
      const rest = waiters.filter((waiter) => waiter !== left)
      expect(rows('SELECT size, changed FROM wait_group')).toEqual([{ size: 9, changed: 0 }])
      expect(await queueOf(store)).toEqual(rest.map(({ id }) => id))
      pass(10_000)
      expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
      expect(rows('SELECT size, changed FROM wait_group')).toEqual([{ size: 9, changed: 0 }])
    }
  })

  add(
    'a waiter that gave up is forgotten although its release failed, when its group has become another',
    async () => {
      const { store, pass, rows } = clockedStore(stage)
      const { waiters } = await newGroup(store, 10, { acceptMs: 300, patienceMs: 300 })
      const [ghost, ...rest] = waiters as [Ticket, ...Ticket[]]
      // The store's clock stands, and that of the rounds runs.
      await until(
        'the others are a group of their own',
        async () => {
          expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
          const groups = rows('SELECT size, changed FROM wait_group ORDER BY size')
          return isDeepStrictEqual(groups, [
            { size: 1, changed: 1 },
            { size: 9, changed: 0 },
          ])
        },
        { withinMs: 10_000 },
      )
      pass(200)
      await store.renew(rest)
      pass(200)
      expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
      expect(await queueOf(store)).toEqual(rest.map(({ id }) => id))
      expect((await store.renew([ghost]))[0]?.tag).toBe('gone')
    },
  )

  add('a waiter whose message was lost finds its lease by the next question about its group', async () => {
    // Nobody listens, so every message is lost.
    const { store } = clockedStore(stage)
    const { holder, waiters } = await newGroup(store, 10)
    const other = new SqliteStore(optionsOf(store))
    onTestFinished(() => other.close())
    await other.release(releaseOf(holder))
    const answers = await store.renew(waiters)
    expect(answers.map(({ tag }) => tag)).toEqual(['held', ...waiters.slice(1).map(() => 'queued')])
  })

  for (const at of [0, 4, 9]) {
    add(
      `the head of the queue asks at the next expiry, the others of its group later (head at ${at})`,
      async () => {
        const { store, pass } = clockedStore(stage)
        const { waiters } = await newGroup(
          store,
          10,
          { ttlMs: 200_000, acceptMs: 6000 },
          { ttlMs: HOLDER_MS },
        )
        pass(HOLDER_MS - 20)
        const asked = waiters.slice(1).toSpliced(at, 0, waiters[0] as Ticket)
        const pauses = (await store.renew(asked)).map(
          (answer) => answer.tag === 'queued' && answer.askAgainMs,
        )
        expect(pauses).toEqual(
          waiters
            .slice(1)
            .map(() => 1000)
            .toSpliced(at, 0, 20),
        )
      },
    )
  }

  add(
    'a lapsed offer costs the living of a group nothing, and the silent behind it their places',
    async () => {
      const { store, pass } = clockedStore(stage)
      const terms = { acceptMs: 1000, lockDelayMs: 1, patienceMs: 100_000 }
      const silent = new SqliteStore(optionsOf(store))
      onTestFinished(() => silent.close())
      const holder = ticket(terms)
      fenceOf(await store.acquire(holder))
      const [first, ...dead] = Array.from({ length: 11 }, () => ticket(terms)) as [Ticket, ...Ticket[]]
      const living = Array.from({ length: 10 }, () => ticket(terms))
      for (const each of [first, ...dead]) await silent.acquire(each)
      await silent.renew(dead)
      for (const each of living) await store.acquire(each)
      await store.renew(living)
      await store.release(releaseOf(holder))
      pass(600)
      await store.renew(living)
      pass(500)
      // The offer to the first one has lapsed. The dead have been silent for longer than their acceptance term, the living have not.
      expect((await store.renew(living)).map(({ tag }) => tag)).toEqual([
        'held',
        ...living.slice(1).map(() => 'queued'),
      ])
      expect(tagsOf(await silent.renew(dead))).toEqual(['gone'])
    },
  )

  add(
    'people see the waiters of a group, until its process is away for longer than the store remembers them',
    async () => {
      const { store, pass, rows } = clockedStore(stage)
      const { holder, waiters } = await newGroup(store, 10)
      pass(PATIENCE_MS - 1)
      await store.renew(waiters)
      pass(PATIENCE_MS - 1)
      expect(await queueOf(store)).toEqual(waiters.map(({ id }) => id))
      pass(1)
      expect(await queueOf(store)).toEqual([])
      await store.release(releaseOf(holder))
      expect(rows('SELECT * FROM waiter')).toEqual([])
      expect(rows('SELECT * FROM wait_group')).toEqual([])
    },
  )

  add('waiters that came back late keep their places as a group', async () => {
    const { store, pass } = clockedStore(stage)
    const { waiters } = await newGroup(store, 10, {}, { ttlMs: 10 * PATIENCE_MS })
    pass(2 * PATIENCE_MS)
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(await queueOf(store)).toEqual(waiters.map(({ id }) => id))
  })

  add('a group says where its process listens, as soon as that changes', async () => {
    const { store, rows } = clockedStore(stage)
    const { holder, waiters } = await newGroup(store, 10)
    expect(rows('SELECT DISTINCT inbox FROM waiter')).toEqual([{ inbox: '' }])
    const woken: string[] = []
    await store.listen((wake) => wake.tag !== 'all' && woken.push(wake.id))
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    const [{ inbox }] = rows('SELECT inbox FROM wait_group') as [{ inbox: string }]
    expect(inbox).not.toBe('')
    expect(rows('SELECT DISTINCT inbox FROM waiter')).toEqual([{ inbox }])
    await store.release(releaseOf(holder))
    expect(woken).toEqual([waiters[0]?.id])
  })

  add('a file that was replaced tells that to each waiter of a group', async () => {
    const { store, path } = clockedStore(stage)
    const { waiters } = await newGroup(store, 10)
    for (const suffix of ['', '-wal', '-shm']) rmSync(path + suffix, { force: true })
    await new Promise((resolve) => setTimeout(resolve, 150))
    expect(tagsOf(await store.renew(waiters))).toEqual(['gone'])
  })

  add('a reboot leaves no group in the file', async () => {
    const { store, rows } = clockedStore(stage)
    await newGroup(store, 10)
    await store.close()
    const behind = () => ({ ms: -1, us: 0 })
    const next = new SqliteStore({ ...optionsOf(store), boot: 'the next', now: behind })
    onTestFinished(() => next.close())
    await next.open()
    expect(rows('SELECT * FROM wait_group')).toEqual([])
  })

  add('two stores with one file make a group each, and neither ends that of the other', async () => {
    const { store, rows, pass } = clockedStore(stage)
    const other = new SqliteStore(optionsOf(store))
    onTestFinished(() => other.close())
    const { waiters } = await newGroup(store, 10)
    const others = Array.from({ length: 10 }, () => ticket())
    for (const each of others) await other.acquire(each)
    await other.renew(others)
    await other.release(releaseOf(others[0] as Ticket))
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(tagsOf(await other.renew(others.slice(1)))).toEqual(['queued'])
    const sizes = rows('SELECT size, changed FROM wait_group ORDER BY size')
    expect(sizes).toEqual([
      { size: 9, changed: 0 },
      { size: 10, changed: 0 },
    ])
    pass(PATIENCE_MS)
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(await queueOf(store)).toEqual(waiters.map(({ id }) => id))
    // A ticket that another store asks about stays what it is.
    expect(tagsOf(await other.renew(waiters))).toEqual(['queued'])
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
  })

  add(
    'a ticket twice in one list, tickets that hold and tickets that are gone get their own answers',
    async () => {
      const { store, rows } = clockedStore(stage)
      const { holder, waiters } = await newGroup(store, 10)
      const [first, second] = waiters as [Ticket, Ticket]
      const strange = ticket()
      const tags = async () =>
        (await store.renew([first, holder, first, strange, ...waiters.slice(1), second])).map(
          ({ tag }) => tag,
        )
      const expected = ['queued', 'held', 'queued', 'gone', ...Array.from({ length: 10 }, () => 'queued')]
      expect(await tags()).toEqual(expected)
      await store.release(releaseOf(waiters[5] as Ticket))
      expect(await tags()).toEqual(expected.map((tag, at) => (at === 8 ? 'gone' : tag)))
      expect(rows('SELECT size, changed FROM wait_group')).toEqual([{ size: 9, changed: 0 }])
    },
  )

  add('readers of several groups that are let in by one question all learn that they hold', async () => {
    const { store, pass, rows } = clockedStore(stage)
    const { waiters } = await newGroup(store, 600, { limit: UNLIMITED }, { ttlMs: HOLDER_MS, limit: 1 })
    expect(rows('SELECT size FROM wait_group ORDER BY size')).toEqual([
      { size: 100 },
      { size: 250 },
      { size: 250 },
    ])
    pass(HOLDER_MS)
    expect(tagsOf(await store.renew(waiters))).toEqual(['held'])
    expect(rows('SELECT * FROM wait_group')).toEqual([])
  })

  add(
    'questions about groups, and a waiter that gives up in the same tick, wait behind a busy file',
    async () => {
      const { store, path, rows } = clockedStore(stage)
      const { waiters } = await newGroup(store, 10)
      const late = Array.from({ length: 10 }, () => ticket())
      for (const each of late) await store.acquire(each)
      const file = openDatabase(path, engine)
      file.exec('BEGIN IMMEDIATE')
      const asked = [store.renew(waiters), store.renew(late)]
      const released = store.release(releaseOf(waiters[3] as Ticket))
      const again = [store.renew(waiters), store.renew(late)]
      file.exec('COMMIT')
      file.close()
      for (const answers of asked) expect(tagsOf(await answers)).toEqual(['queued'])
      expect(await released).toEqual({ was: 'queued' })
      const rest = waiters.filter((_, at) => at !== 3)
      const [ofWaiters, ofLate] = await Promise.all(again)
      expect(ofWaiters?.map(({ tag }) => tag)).toEqual(waiters.map((_, at) => (at === 3 ? 'gone' : 'queued')))
      expect(tagsOf(ofLate ?? [])).toEqual(['queued'])
      for (const each of [rest, late]) expect(tagsOf(await store.renew(each))).toEqual(['queued'])
      expect(rows('SELECT size, changed FROM wait_group ORDER BY size')).toEqual([
        { size: 9, changed: 0 },
        { size: 10, changed: 0 },
      ])
    },
  )

  add('a group is made whole or not at all', async () => {
    const { store, rows, path } = clockedStore(stage)
    const holder = ticket()
    fenceOf(await store.acquire(holder))
    const waiters = Array.from({ length: 10 }, () => ticket())
    for (const each of waiters) await store.acquire(each)
    const file = openDatabase(path, engine)
    file.exec("CREATE TRIGGER broken BEFORE INSERT ON wait_group BEGIN SELECT raise(ABORT, 'no group'); END")
    expect(() => store.renew(waiters)).toThrow('no group')
    file.exec('DROP TRIGGER broken')
    file.close()
    expect(rows("SELECT * FROM waiter WHERE group_name <> ''")).toEqual([])
    await until('the store looks at the file again', async () => {
      const answers = await Promise.resolve()
        .then(() => store.renew(waiters))
        .catch(() => [])
      return answers.length === waiters.length && tagsOf(answers).join() === 'queued'
    })
    expect(rows('SELECT size, changed FROM wait_group')).toEqual([{ size: 10, changed: 0 }])
  })

  return cases
}

const HOLDER_MS = 50_000
const PATIENCE_MS = ticket().patienceMs

interface Group {
  readonly holder: Ticket
  readonly waiters: readonly Ticket[]
  readonly pass: (ms: number) => void
}

const options = new WeakMap<Store, ConstructorParameters<typeof SqliteStore>[0]>()

function optionsOf(store: Store): ConstructorParameters<typeof SqliteStore>[0] {
  return options.get(store) as ConstructorParameters<typeof SqliteStore>[0]
}

/** A store whose clock stands still, and a look into its file. */
function clockedStore({ SqliteStore, engine, folder }: GroupStage) {
  const path = `${folder}/${crypto.randomUUID()}.db`
  let ms = 0
  const own = { path, engine, boot: 'test', now: () => ({ ms, us: ms * 1000 }) }
  const store = new SqliteStore(own)
  options.set(store, own)
  onTestFinished(() => store.close())
  const rows = (sql: string): readonly unknown[] => {
    const file = openDatabase(path, engine)
    try {
      return file
        .prepare(sql)
        .all()
        .map((row) => ({ ...(row as object) }))
    } finally {
      file.close()
    }
  }
  const pass = (more: number): void => {
    ms += more
  }
  return { store, path, pass, rows }
}

/** A holder, and its waiters as a group. */
async function newGroup(
  of: Store,
  size: number,
  draft: Partial<Ticket> = {},
  holding: Partial<Ticket> = {},
): Promise<{ holder: Ticket; waiters: Ticket[] }> {
  const holder = ticket({ ttlMs: 10_000_000, ...holding })
  const waiters = Array.from({ length: size }, () => ticket(draft))
  fenceOf(await of.acquire(holder))
  for (const waiter of waiters) await of.acquire(waiter)
  expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  return { holder, waiters }
}

async function queueOf(of: Store): Promise<readonly string[]> {
  const { rooms } = await of.inspect({ prefix: 'key', cursor: undefined, count: 1 })
  return (rooms[0]?.queue ?? []).map(({ id }) => id)
}

function tagsOf(answers: readonly { readonly tag: string }[]): string[] {
  return [...new Set(answers.map(({ tag }) => tag))]
}
