import { isDeepStrictEqual } from 'node:util'
import { expect } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import type { GroupStage } from './group-stage.ts'

interface GroupCase {
  readonly name: string
  readonly run: () => Promise<void>
}

interface Group {
  readonly key: string
  readonly holder: Ticket
  readonly waiters: readonly Ticket[]
}

const HOLDER_MS = 50_000
const PATIENCE_MS = ticket().patienceMs
const SOON = { withinMs: 15_000 }

/** What waiters in groups are owed, case by case. Each case has a key of its own. */
export function groupCases(stage: GroupStage): readonly GroupCase[] {
  const { pass, rows } = stage
  const store = stage.newStore()
  const other = stage.newStore()
  const cases: GroupCase[] = []
  const add = (name: string, run: (key: string) => Promise<void>): void => {
    cases.push({ name, run: () => run(crypto.randomUUID()) })
  }
  const groupsOf = (key: string) =>
    rows(`select size::int, changed from holdfast.lock_wait_groups where key = '${key}' order by size`)
  const waitersOf = (key: string) =>
    rows(`select id, ctid from holdfast.lock_waiters where key = '${key}' order by place`)
  const isClear = async (key: string): Promise<void> => {
    expect([...(await groupsOf(key)), ...(await waitersOf(key))]).toEqual([])
  }

  for (const [size, sizes] of [
    [10, [10]],
    [300, [50, 250]],
  ] as const) {
    add(`renewals change no row of ${size} waiters`, async (key) => {
      const { waiters } = await newGroup(store, key, { size })
      const before = await waitersOf(key)
      for (let round = 0; round < 5; round += 1) {
        await pass(PATIENCE_MS - 1)
        expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
        expect(await queueOf(store, key)).toEqual(waiters.map(({ id }) => id))
      }
      expect(await waitersOf(key)).toEqual(before)
      expect(await groupsOf(key)).toEqual(sizes.map((each) => ({ size: each, changed: false })))
      await store.evict({ key, id: undefined, reason: 'a test' })
      await isClear(key)
    })
  }

  const ways: Readonly<Record<string, (group: Group) => unknown>> = {
    'gives up': ({ waiters }) => store.release(releaseOf(waiters[3] as Ticket)),
    'is evicted': ({ key, waiters }) => store.evict({ key, id: waiters[3]?.id, reason: 'a test' }),
    'asks alone': ({ waiters }) => store.renew(waiters.slice(3, 4)),
    'asks for the key again': ({ waiters }) => store.acquire(waiters[3] as Ticket),
    'is asked about by another process': ({ waiters }) => other.renew(waiters.slice(3, 4)),
    'is admitted': ({ holder }) => other.release(releaseOf(holder)),
    'is admitted by the question': () => pass(HOLDER_MS),
  }
  for (const [name, leave] of Object.entries(ways)) {
    add(`a waiter that ${name} ends its group, and the others become a new one`, async (key) => {
      const group = await newGroup(store, key, { draft: { ttlMs: 200_000 }, holding: { ttlMs: HOLDER_MS } })
      const { waiters } = group
      await leave(group)
      const admitted = name.startsWith('is admitted')
      const goes = admitted || name === 'gives up' || name === 'is evicted'
      const left = admitted ? waiters[0] : waiters[3]
      if (name !== 'is admitted by the question')
        expect(await groupsOf(key)).toEqual([{ size: 9, changed: true }])
      const answers = await store.renew(waiters)
      for (const [at, { tag }] of answers.entries())
        expect({ at, tag }).toEqual({
          at,
          tag: waiters[at] !== left || !goes ? 'queued' : admitted ? 'held' : 'gone',
        })
      const rest = goes ? waiters.filter((waiter) => waiter !== left) : waiters
      // What came anew has no group yet, and is one waiter only.
      const size = name === 'asks for the key again' ? 9 : rest.length
      expect(await groupsOf(key)).toEqual([{ size, changed: false }])
      expect(await queueOf(store, key)).toEqual(rest.map(({ id }) => id))
      for (const each of [group.holder, ...waiters]) await store.release(releaseOf(each))
      await isClear(key)
    })
  }

  add('a waiter that gave up, and whose release was lost, is forgotten', async (key) => {
    const { waiters } = await newGroup(store, key, { draft: { acceptMs: 300, patienceMs: 300 } })
    const [ghost, ...rest] = waiters as [Ticket, ...Ticket[]]
    // The store's clock stands, and that of the rounds runs.
    await until(
      'the others are a group of their own',
      async () => {
        expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
        return isDeepStrictEqual(await groupsOf(key), [
          { size: 1, changed: true },
          { size: 9, changed: false },
        ])
      },
      { withinMs: 20_000 },
    )
    await pass(200)
    await store.renew(rest)
    await pass(200)
    await store.renew(rest)
    expect(await queueOf(store, key)).toEqual(rest.map(({ id }) => id))
    expect(tagsOf(await store.renew([ghost]))).toEqual(['gone'])
  })

  add('a waiter whose message was lost finds its lease by the next question about its group', async (key) => {
    // Nobody listens, so every message is lost.
    const { holder, waiters } = await newGroup(store, key)
    await other.release(releaseOf(holder))
    const answers = await store.renew(waiters)
    expect(answers.map(({ tag }) => tag)).toEqual(['held', ...waiters.slice(1).map(() => 'queued')])
  })

  for (const at of [0, 4, 9]) {
    add(`the head of the queue asks sooner than the others of its group (head at ${at})`, async (key) => {
      const { waiters } = await newGroup(store, key, {
        draft: { ttlMs: 200_000, acceptMs: 6000 },
        holding: { ttlMs: HOLDER_MS },
      })
      const asked = waiters.slice(1).toSpliced(at, 0, waiters[0] as Ticket)
      const pauses = async () =>
        (await store.renew(asked)).map((answer) => answer.tag === 'queued' && answer.askAgainMs)
      const expected = waiters
        .slice(1)
        .map(() => 1000)
        .toSpliced(at, 0, 20)
      await pass(HOLDER_MS - 20)
      expect(await pauses()).toEqual(expected)
      // As they join a group, too.
      await store.release(releaseOf(asked.splice(5, 1)[0] as Ticket))
      expect(await pauses()).toEqual(expected.toSpliced(5, 1))
    })
  }

  add('a lapsed offer costs the living of a group nothing, and the silent their places', async (key) => {
    const terms = { key, acceptMs: 1000, lockDelayMs: 1, patienceMs: 100_000 }
    const holder = ticket({ ...terms, ttlMs: 1_000_000 })
    fenceOf(await store.acquire(holder))
    const [first, ...dead] = Array.from({ length: 11 }, () => ticket(terms)) as [Ticket, ...Ticket[]]
    const living = Array.from({ length: 10 }, () => ticket(terms))
    for (const each of [first, ...dead]) await other.acquire(each)
    await other.renew(dead)
    for (const each of living) await store.acquire(each)
    await store.renew(living)
    await store.release(releaseOf(holder))
    await pass(600)
    await store.renew(living)
    await pass(500)
    // The offer to the first one has lapsed. The dead have been silent for longer than their acceptance term, the living have not.
    expect((await store.renew(living)).map(({ tag }) => tag)).toEqual([
      'held',
      ...living.slice(1).map(() => 'queued'),
    ])
    expect(await groupsOf(key)).toEqual([{ size: 9, changed: false }])
    expect(tagsOf(await other.renew(dead))).toEqual(['gone'])
  })

  add('people see the waiters of a group, and a release passes them once they are forgotten', async (key) => {
    const { holder, waiters } = await newGroup(store, key, { holding: { ttlMs: 10 * PATIENCE_MS } })
    await pass(PATIENCE_MS - 1)
    await store.renew(waiters)
    await pass(PATIENCE_MS - 1)
    expect(await queueOf(store, key)).toEqual(waiters.map(({ id }) => id))
    await pass(1)
    expect(await queueOf(store, key)).toEqual([])
    await store.release(releaseOf(holder))
    await isClear(key)
  })

  add('waiters that come back late keep their places as a group', async (key) => {
    const { waiters } = await newGroup(store, key, { holding: { ttlMs: 10 * PATIENCE_MS } })
    await pass(2 * PATIENCE_MS)
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(await queueOf(store, key)).toEqual(waiters.map(({ id }) => id))
  })

  add('after the clock was set back, a group is remembered no longer than before', async (key) => {
    const { holder, waiters } = await newGroup(store, key)
    await pass(-1_000_000)
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    await pass(PATIENCE_MS)
    expect(await queueOf(store, key)).toEqual([])
    await store.release(releaseOf(holder))
    await isClear(key)
  })

  add('the sweep forgets dead waiters and their group, and no living ones', async (key) => {
    const terms = { holding: { ttlMs: 10_000_000 } }
    const { waiters: dead } = await newGroup(other, key, terms)
    const living = await newGroup(store, `${key} living`, terms)
    for (let passed = 0; passed <= PATIENCE_MS + 60_000; passed += PATIENCE_MS / 2) {
      await pass(PATIENCE_MS / 2)
      await store.renew(living.waiters)
    }
    // One that lives stands in front of the dead.
    await rows(
      `update holdfast.lock_waiters set group_name = '', remembered_until = 1e15 where id = '${dead[0]?.id}'`,
    )
    await rows(`update holdfast.lock_wait_groups set size = size - 1 where key = '${key}'`)
    await until('it is swept', async () => {
      await rows('select holdfast.lock_sweep(500)')
      return (await waitersOf(key)).length === 1
    })
    expect(await groupsOf(key)).toEqual([])
    expect(await waitersOf(living.key)).toHaveLength(10)
  })

  add('a group says whether its process hears messages', async (key) => {
    const listening = stage.newStore()
    const { holder, waiters } = await newGroup(listening, key)
    const woken: string[] = []
    await listening.listen?.((wake) => woken.push(wake.tag))
    expect(tagsOf(await listening.renew(waiters))).toEqual(['queued'])
    await other.release(releaseOf(holder))
    await until('the head has its lease', async () => woken.length > 0, SOON)
    expect(woken).toEqual(['granted'])
  })

  add('the head of a group that was silent for its acceptance term is only offered the key', async (key) => {
    const listening = stage.newStore()
    await listening.listen?.(() => {})
    const { holder } = await newGroup(listening, key, { draft: { acceptMs: 1000 } })
    await pass(1001)
    await store.release(releaseOf(holder))
    const { rooms } = await store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
    expect(rooms[0]?.holders.map(({ state }) => state)).toEqual(['offered'])
  })

  add('the waiters of a group whose process is gone are passed over', async (key) => {
    const dying = stage.newStore()
    await dying.listen?.(() => {})
    const { holder, waiters } = await newGroup(dying, key)
    const living = ticket({ key })
    await store.listen?.(() => {})
    await store.acquire(living)
    await dying.close()
    const alive = `select from pg_locks as lock, holdfast.lock_waiters as waiter
      where key = '${key}' and id = '${waiters[0]?.id}' and classid = 1212236373
        and objid = (hashtext(inbox)::bigint & 4294967295)::oid`
    await until('the server knows', async () => (await rows(alive)).length === 0)
    await store.release(releaseOf(holder))
    expect((await store.renew([living]))[0]?.tag).toBe('held')
    expect(await queueOf(store, key)).toEqual(waiters.map(({ id }) => id))
  })

  add('a waiter that another process asks about is remembered for itself', async (key) => {
    const { waiters } = await newGroup(store, key)
    await pass(PATIENCE_MS - 1)
    await other.renew(waiters.slice(3, 4))
    await pass(1)
    expect(await queueOf(store, key)).toEqual([waiters[3]?.id])
  })

  add('readers and writers in turns are one group, and a few on other terms ask alone', async (key) => {
    const holder = ticket({ key, ttlMs: 10_000_000 })
    const waiters = Array.from({ length: 12 }, (_, at) =>
      ticket({ key, limit: at % 2 === 0 ? 1 : UNLIMITED, ...(at > 9 && { ttlMs: 90_000 }) }),
    )
    for (const each of [holder, ...waiters]) await store.acquire(each)
    for (let round = 0; round < 2; round += 1) {
      expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
      expect(await groupsOf(key)).toEqual([{ size: 10, changed: false }])
    }
  })

  add('two processes make a group each, and neither ends that of the other', async (key) => {
    const { waiters } = await newGroup(store, key)
    const others = Array.from({ length: 10 }, () => ticket({ key }))
    for (const each of others) await other.acquire(each)
    await other.renew(others)
    await other.release(releaseOf(others[0] as Ticket))
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(tagsOf(await other.renew(others.slice(1)))).toEqual(['queued'])
    expect(await groupsOf(key)).toEqual([
      { size: 9, changed: false },
      { size: 10, changed: false },
    ])
  })

  add('a ticket twice in one list, and those that hold or are gone, get their own answers', async (key) => {
    const { holder, waiters } = await newGroup(store, key)
    const [first, second] = waiters as [Ticket, Ticket]
    const strange = ticket({ key })
    const tags = async () =>
      (await store.renew([first, holder, first, strange, ...waiters.slice(1), second])).map(({ tag }) => tag)
    const expected = ['queued', 'held', 'queued', 'gone', ...Array.from({ length: 10 }, () => 'queued')]
    expect(await tags()).toEqual(expected)
    await store.release(releaseOf(waiters[5] as Ticket))
    expect(await tags()).toEqual(expected.map((tag, at) => (at === 8 ? 'gone' : tag)))
    expect(await groupsOf(key)).toEqual([{ size: 9, changed: false }])
  })

  add('a group whose making got no answer is made again, and then anew by other questions', async (key) => {
    const { waiters } = await newGroup(store, key)
    const ids = waiters.map(({ id }) => id).join(',')
    const join = `select holdfast.lock_join_group('${key}', 'again', '{${ids}}', 1000, 1000, 60000, 0, 'x', false, false) as lines`
    const [once, again] = [await rows(join), await rows(join)]
    expect(again).toEqual(once)
    expect(await groupsOf(key)).toEqual([{ size: 10, changed: false }])
    expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
    expect(await groupsOf(key)).toEqual([{ size: 10, changed: false }])
  })

  add('readers of several groups that are let in by one question all learn that they hold', async (key) => {
    const { waiters } = await newGroup(store, key, {
      size: 600,
      draft: { limit: UNLIMITED, ttlMs: 10_000_000 },
      holding: { ttlMs: HOLDER_MS, limit: 1 },
    })
    expect(await groupsOf(key)).toEqual([100, 250, 250].map((size) => ({ size, changed: false })))
    await pass(HOLDER_MS)
    await until('all hold', async () => isDeepStrictEqual(tagsOf(await store.renew(waiters)), ['held']), SOON)
    await isClear(key)
  })

  return cases
}

/** A holder, and its waiters as a group. */
async function newGroup(
  of: Store,
  key: string,
  {
    size = 10,
    draft = {},
    holding = {},
  }: { size?: number; draft?: Partial<Ticket>; holding?: Partial<Ticket> } = {},
): Promise<Group> {
  const holder = ticket({ ttlMs: 10_000_000, ...holding, key })
  const waiters = Array.from({ length: size }, () => ticket({ ...draft, key }))
  fenceOf(await of.acquire(holder))
  await Promise.all(waiters.map((waiter) => of.acquire(waiter)))
  expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  return { key, holder, waiters }
}

async function queueOf(of: Store, key: string): Promise<readonly string[]> {
  const { rooms } = await of.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
  return (rooms[0]?.queue ?? []).map(({ id }) => id)
}

function tagsOf(answers: readonly { readonly tag: string }[]): string[] {
  return [...new Set(answers.map(({ tag }) => tag))]
}
