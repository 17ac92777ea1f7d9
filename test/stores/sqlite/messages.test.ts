import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { until } from '../../servers/until.ts'
import { freshFolder } from './lock-folder.ts'
import { StoreProcess } from './processes/store-process.ts'
import { ticket } from './tickets.ts'

const folder = freshFolder()
let files = 0

test('the message to a process that this one has a connection to is the lease, and the first one a hint', async () => {
  const { store, head, behind, holders } = await beforeTurn({})
  await store.release({ key: 'key', id: head.before.id, cancel: false })
  expect(await holders()).toMatchObject([{ id: head.ticket.id, state: 'held' }])
  await until('the head hears', () => head.process.granted.has(head.ticket.id))
  const [held] = await holders()
  expect(head.process.granted.get(head.ticket.id)).toBe(held?.fence)
  expect(held?.remainingMs).toBeGreaterThan(head.ticket.acceptMs)
  expect(head.process.granted.has(head.first.id)).toBe(false)
  expect(behind.woken).not.toContain(behind.ticket.id)
})

test('a head that is killed just before its turn is passed at once', async () => {
  const { store, head, behind, holders } = await beforeTurn({})
  await head.process.kill()
  await store.release({ key: 'key', id: head.before.id, cancel: false })
  await until('the one behind it is woken', () => behind.woken.includes(behind.ticket.id), {
    withinMs: head.ticket.acceptMs / 2,
  })
  expect(await holders()).toMatchObject([{ id: behind.ticket.id }])
})

test('a head that is frozen just before its turn costs its ttl, as a holder that is frozen just after', async () => {
  const { store, head, behind, holders } = await beforeTurn({ ttlMs: 5000, acceptMs: 5000 })
  head.process.child.kill('SIGSTOP')
  const startedAt = performance.now()
  await store.release({ key: 'key', id: head.before.id, cancel: false })
  expect(await holders()).toMatchObject([{ id: head.ticket.id, state: 'held' }])
  await until('the next one holds', async () => (await store.renew([behind.ticket]))[0]?.tag === 'held')
  expect(performance.now() - startedAt).toBeGreaterThan(4900)
})

/** The store of this test holds the key, behind it the head of another process waits, and behind that one a ticket of this test. */
async function beforeTurn(terms: Partial<Ticket>) {
  files += 1
  const path = join(folder, `${files}`, 'locks.db')
  const store = await openSqlite(path)
  onTestFinished(() => store.close())
  const woken: string[] = []
  await store.listen?.((wake) => {
    if (wake.tag !== 'all') woken.push(wake.id)
  })
  const process = await StoreProcess.start(path)
  const [opening, first, before] = [ticket(), ticket(), ticket()]
  await store.acquire(opening)
  await process.acquire(first)
  await store.acquire(before)
  await store.release({ key: 'key', id: opening.id, cancel: false })
  await until('the first message has come', () => process.woken.includes(first.id))
  const [its, mine] = [ticket(terms), ticket()]
  await process.acquire(its)
  await store.acquire(mine)
  await process.release({ key: 'key', id: first.id, cancel: false })
  await until('it is the turn of the one before the head', () => woken.includes(before.id))
  await store.renew([before])
  const holders = async () =>
    (await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })).rooms[0]?.holders ?? []
  return {
    store,
    head: { process, ticket: its, first, before },
    behind: { ticket: mine, woken },
    holders,
  }
}
