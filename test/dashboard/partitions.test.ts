import { afterEach, beforeEach, expect, test } from 'vitest'
import { createDashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { PartitionsJson } from '../../src/dashboard/view-json.ts'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'
import { SharedOut } from './shared-out.ts'

let shared: SharedOut
let dashboard: Dashboard
let server: TestServer
beforeEach(async () => {
  shared = new SharedOut(memoryStore())
  dashboard = createDashboard(shared.locks)
  server = await serve(dashboard)
})
afterEach(async () => {
  await dashboard.close()
  await server[Symbol.asyncDispose]()
  await shared[Symbol.asyncDispose]()
})

async function view(query = ''): Promise<PartitionsJson> {
  return JSON.parse((await ask(server, { path: `/api/view?view=partitions&${query}` })).text)
}

/** The keys that each process holds, and what it is to hold. */
const sharesIn = ({ rows: [row] }: PartitionsJson) =>
  row?.processes.map(({ owner, keys, due, weight }) => [owner.label, weight, keys.length, due])

test('each process is shown with its share, its keys, and what moves from it', async () => {
  const heldUp = shared.join('web-1', { partitions: 10 })
  await until('it holds all keys', async () => (await view()).rows[0]?.held === 10)
  heldUp.hang()
  shared.join('web-2', { partitions: 10, weight: 4 })
  const moving = await until('keys move', async () => {
    const seen = await view()
    return seen.rows[0]?.moving === 8 && seen
  })
  expect(moving.rows[0]).toMatchObject({ name: 'customers', keys: 10, members: 2, held: 10, free: [] })
  expect(sharesIn(moving)).toEqual([
    ['web-1', 1, 10, 2],
    ['web-2', 4, 0, 8],
  ])
  const [first] = moving.rows[0]?.processes ?? []
  expect(first?.keys.map(([key]) => key)).toEqual(Array.from({ length: 10 }, (_, number) => String(number)))
  const { fence } = heldUp.partition.held.get(0) ?? {}
  expect(first?.keys[0]?.slice(0, 2)).toEqual(['0', String(fence)])
  // By its place in the list of processes.
  expect(first?.keys.filter(([, , , to]) => to === 1).length).toBe(8)

  heldUp.goOn()
  await until('the keys have moved', async () => {
    const { rows } = await view()
    return rows[0]?.moving === 0 && rows[0].processes[1]?.keys.length === 8
  })
  const csv = (await ask(server, { path: '/api/export?view=partitions&format=csv' })).text
  expect(csv.split('\r\n')[0]).toBe('partition,key,holder,host,pid,fence,heldSince,movesTo')
  expect(csv.match(/^customers,\d,web-2,/gm)?.length).toBe(8)
})

test('keys that nobody holds are shown, and other keys and groups are not taken for those of a partition', async () => {
  shared.join('web-1', { partitions: 3, weight: 0 })
  await shared.locks.acquire('customers:orders')
  await using _ = await shared.locks.group('team#2').join({ value: 'no share' })
  const list = shared.join('web-2', { name: 'queues', keys: ['mails', 'orders'] })
  const { rows } = await until('both are seen', async () => {
    const seen = await view()
    return seen.rows[1]?.held === 2 && seen
  })
  expect(rows.map(({ name }) => name)).toEqual(['customers', 'queues'])
  expect(rows[0]?.free.map(([key]) => key)).toEqual(['0', '1', '2'])
  expect(rows[1]?.processes.map(({ keys }) => keys.map(([key]) => key))).toEqual([['mails', 'orders']])
  expect((await view('search=QUEUE')).rows.length).toBe(1)
  await list.partition.stop()
  await until('it is gone', async () => (await view()).matching === 1)
})

test('a process that is no member any more is shown with the keys that it still holds', async () => {
  shared.join('web-1', { partitions: 2, weight: 0 })
  const other = createLocks(shared.store, { label: 'old' })
  const lease = await other.acquire('customers:1')
  const { rows } = await until('it is seen', async () => {
    const seen = await view()
    return seen.rows[0]?.held === 1 && seen
  })
  const { processes = [], members } = rows[0] ?? {}
  expect(members).toBe(1)
  expect(processes.map(({ owner, weight, keys }) => [owner.label, weight, keys.length])).toEqual([
    ['web-1', 0, 0],
    ['old', undefined, 1],
  ])
  await lease.release()
  await other.close()
})
