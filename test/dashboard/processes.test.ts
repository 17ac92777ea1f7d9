import { afterEach, beforeEach, expect, test } from 'vitest'
import { createDashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { LossesJson, ProcessesJson } from '../../src/dashboard/view-json.ts'
import { createLocks, type InspectedRoom, type Locks } from '../../src/index.ts'
import { Processes } from '../../src/room-watch/processes.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { startBrowser, visit } from './browser.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'

let web: Locks
let worker: Locks
let dashboard: Dashboard
let server: TestServer
beforeEach(async () => {
  const store = memoryStore()
  web = createLocks(store, { label: 'web-1' })
  worker = createLocks(store, { label: 'worker-1' })
  dashboard = createDashboard(web)
  server = await serve(dashboard)
})
afterEach(async () => {
  await dashboard.close()
  await server[Symbol.asyncDispose]()
  await worker.close()
  await web.close()
})

async function view<T>(query: string): Promise<T> {
  return JSON.parse((await ask(server, { path: `/api/view?${query}` })).text)
}

const processes = (search = ''): Promise<ProcessesJson> => view(`view=processes&search=${search}`)

test('each process is shown with what it holds and waits for, and stays for a while when it is idle', async () => {
  const leases = [await web.acquire('a'), await web.acquire('b')]
  const waiting = worker.acquire('a', { wait: '1h' })
  const both = await until('both are seen', async () => {
    const seen = await processes()
    return seen.rows.length === 2 && seen.rows
  })
  expect(both).toMatchObject([
    { owner: { label: 'web-1', pid: process.pid }, state: 'present', holding: 2, waiting: 0 },
    { owner: { label: 'worker-1' }, state: 'present', holding: 0, waits: [{ key: 'a' }] },
  ])
  expect(both[0]?.holds.map(({ key }) => key)).toEqual(['a', 'b'])
  for (const lease of leases) await lease.release()
  const taken = await waiting
  await until('one is idle', async () => (await processes()).rows[1]?.state === 'idle')
  expect((await processes()).rows).toMatchObject([
    { owner: { label: 'worker-1' }, holding: 1, waiting: 0 },
    { owner: { label: 'web-1' }, holding: 0 },
  ])
  expect((await processes('WORKER')).rows.map(({ owner }) => owner.label)).toEqual(['worker-1'])
  await taken.release()
})

test('a loss says whether its process was heard of afterwards', async () => {
  const lost = await worker.acquire('lost', { ttl: '8s', renew: false })
  await until('it is seen', async () => (await processes()).rows.length > 0)
  await until('it is lost', () => lost.state === 'lost')
  const loss = () =>
    until('the loss is seen', async () => (await view<LossesJson>('view=losses')).rows[0] ?? false)
  expect((await loss()).heardAt).toBeLessThan((await loss()).untilAt)
  await worker.acquire('later')
  await until('it is heard of', async () => ((await loss()).heardAt ?? 0) > (await loss()).untilAt)
})

test('who observes an election that nobody leads holds nothing, in every view', async () => {
  const end = new AbortController()
  const observing = (async () => {
    for await (const _ of worker.election('mailer').observe({ signal: end.signal }));
  })().catch(() => {})
  await web.acquire('k')
  type Keys = { readonly rows: readonly { readonly key: string; readonly observers: number }[] }
  await until('it observes', async () =>
    (await view<Keys>('view=keys')).rows.some(({ observers }) => observers === 1),
  )
  expect(await view('view=keys&sort=holder')).toMatchObject({
    totals: expect.arrayContaining([expect.objectContaining({ keys: 2, holding: 1 })]),
    rows: [
      { key: 'k', holding: 1 },
      { key: 'mailer#vacant', holding: 0, isElection: true },
    ],
  })
  expect(await view('key=mailer%23vacant')).toMatchObject({ holding: 0, holders: [], observers: 1 })
  expect((await processes('worker')).rows).toMatchObject([{ state: 'idle', holding: 0, holds: [] }])
  end.abort()
  await observing
})

test('idle processes are forgotten after an hour', () => {
  const seen = new Processes()
  const room = (pid: number): InspectedRoom => ({
    ...{ key: `k${pid}`, queue: [], closedMs: 0 },
    holders: [
      {
        ...{ id: 'x', units: 1, limit: 1, fence: 1n, heldMs: 500, remainingMs: 1, state: 'held' },
        owner: { host: 'h', pid },
      },
    ],
  })
  const look = (at: number, ...pids: readonly number[]) =>
    seen.look(pids.map(room), { at, renewedAt: () => at - 100 })
  look(1_000_000, 1, 2)
  expect(seen.heardAt({ host: 'h', pid: 1 })).toBe(999_900)
  look(4_500_000, 2)
  expect(seen.view([]).map(({ owner }) => owner.pid)).toEqual([1, 2])
  look(4_700_000, 2)
  expect(seen.view([]).map(({ owner, seenAt }) => [owner.pid, seenAt])).toEqual([[2, 1_000_000]])
  expect(seen.heardAt({ host: 'h', pid: 1 })).toBeUndefined()
})

test('the page of processes leads to their keys', async () => {
  const browser = await startBrowser()
  try {
    await web.acquire('job:1')
    await using visited = await visit(browser, server.url)
    const { page } = visited
    await page.getByRole('link', { name: 'Processes' }).click()
    const row = page.getByRole('row', { name: /web-1/ })
    await row.getByText('present').waitFor()
    await row.getByRole('link', { name: 'job:1' }).click()
    await page.getByRole('heading', { name: 'job:1' }).waitFor()
    expect(visited.wrongs).toEqual([])
  } finally {
    await browser.close()
  }
})
