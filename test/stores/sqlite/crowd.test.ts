import { expect, test } from 'vitest'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { freshFolder } from './lock-folder.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()

test('a thousand readers behind a writer are let in by one step, and nobody behind the next writer', async () => {
  const store = await openSqlite(`${folder}/wave.db`)
  const woken: string[] = []
  await store.listen?.((wake) => wake.tag === 'ticket' && woken.push(wake.id))
  const [first, second] = [ticket(), ticket()]
  const readers = Array.from({ length: 1_000 }, () => ticket({ limit: UNLIMITED }))
  const late = ticket({ limit: UNLIMITED })
  for (const each of [first, ...readers, second, late]) await store.acquire(each)
  await store.release({ key: 'key', id: first.id, cancel: false })
  expect(woken).toEqual(readers.map(({ id }) => id))
  const fences = (await store.renew(readers)).map((answer) => (answer.tag === 'held' ? answer.fence : 0n))
  for (const [index, fence] of fences.slice(1).entries())
    expect(fence).toBeGreaterThan(fences[index] ?? fence)
  const [room] = (await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })).rooms
  expect(room?.holders.map(({ id }) => id)).toEqual(readers.map(({ id }) => id))
  expect(await store.renew([second, late])).toMatchObject([{ tag: 'queued' }, { tag: 'queued' }])
  for (const { id } of readers) await store.release({ key: 'key', id, cancel: false })
  expect(woken.slice(1_000)).toEqual([second.id])
  await store.close()
})

test('a large batch of renewals lets the event loop turn in between', async () => {
  const store = await openSqlite(`${folder}/batch.db`)
  const tickets = Array.from({ length: 3_000 }, (_, index) => ticket({ key: `key:${index}` }))
  for (const each of tickets) await store.acquire(each)
  let turns = 0
  const turn = (): void => {
    turns += 1
    turning = setImmediate(turn)
  }
  let turning = setImmediate(turn)
  const answers = await store.renew(tickets)
  clearImmediate(turning)
  expect(answers.filter(({ tag }) => tag === 'held')).toHaveLength(3_000)
  expect(turns).toBeGreaterThan(2)
  expect(turns).toBeLessThan(1_000)
  await store.close()
})

test('dead waiters, however many, are skipped by the step that reaches them', async () => {
  let ms = 0
  const store = await openSqlite({
    path: `${folder}/dead.db`,
    now: () => ({ ms, us: ms * 1_000 }),
    boot: 'test',
  })
  const [holder, living] = [ticket(), ticket()]
  await store.acquire(holder)
  for (let index = 0; index < 300; index += 1) await store.acquire(ticket({ patienceMs: 1_000 }))
  expect(await store.acquire(living)).toMatchObject({ tag: 'queued', ahead: 300 })
  ms += 2_000
  await store.release({ key: 'key', id: holder.id, cancel: false })
  expect(await store.renew([living])).toMatchObject([{ tag: 'held' }])
  await store.close()
})

test('a step costs about the same in an empty room, behind a thousand waiters and beside a thousand readers', async () => {
  const store = await openSqlite(`${folder}/cost.db`)
  const costs = new Map<string, number>()
  const measure = async (name: string, key: string, limit: number) => {
    const takes: number[] = []
    for (let round = 0; round < 300; round += 1) {
      const mine = ticket({ key, limit, patienceMs: 0 })
      const startedAt = performance.now()
      await store.acquire(mine)
      await store.release({ key, id: mine.id, cancel: false })
      takes.push(performance.now() - startedAt)
    }
    costs.set(name, takes.sort((one, other) => one - other)[150] ?? 0)
  }
  for (let index = 0; index < 1_000; index += 1) {
    await store.acquire(ticket({ key: 'waiters' }))
    await store.acquire(ticket({ key: 'readers', limit: UNLIMITED }))
  }
  await measure('empty', 'empty', UNLIMITED)
  await measure('waiters', 'waiters', 1)
  await measure('readers', 'readers', UNLIMITED)
  expect(costs.get('waiters')).toBeLessThan(10 * (costs.get('empty') ?? 0))
  // Their sum is taken by SQLite, 0.1 µs a reader; loading them would take ten times as long.
  expect(costs.get('readers')).toBeLessThan(40 * (costs.get('empty') ?? 0))
  await store.close()
})
