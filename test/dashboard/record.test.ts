import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { RecordFile } from '../../src/dashboard/record-file.ts'
import type { HistoryJson, KeyJson, LossesJson } from '../../src/dashboard/view-json.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { openDatabase } from '../../src/stores/sqlite/sqlite-engine.ts'
import { until } from '../servers/until.ts'
import { startBrowser, visit } from './browser.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'

let folder: string
let file: string
let locks: Locks
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-record-'))
  file = join(folder, 'history.db')
  locks = createLocks(memoryStore(), { label: 'web-1' })
})
afterEach(async () => {
  await locks.close()
  rmSync(folder, { recursive: true, force: true })
})

interface Opened extends AsyncDisposable {
  readonly server: TestServer
  view<T>(query: string): Promise<T & { readonly history: HistoryJson }>
}

async function open(of: Locks, options: DashboardOptions): Promise<Opened> {
  const dashboard = createDashboard(of, options)
  const server = await serve(dashboard)
  return {
    server,
    view: async (query) => JSON.parse((await ask(server, { path: `/api/view?${query}` })).text),
    async [Symbol.asyncDispose]() {
      await dashboard.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

/** A key that is held, seen, and lost, while no page is open. Resolves once its time is over. */
async function lose(key: string): Promise<void> {
  const lease = await locks.acquire(key, { ttl: '8s', renew: false })
  await until('it is lost', () => lease.state === 'lost')
}

test('what was lost before anybody looked is listed, and the numbers count what the list shows', async () => {
  await using opened = await open(locks, { record: true, allowEvict: true })
  await lose('job:1')
  await until('the loss is seen', async () => (await opened.view('')).history.expired === 1)
  const { id } = await locks.acquire('job:2')
  await until('it is seen', async () => (await opened.view<KeyJson>('key=job:2')).holding === 1)
  const { status } = await ask(opened.server, {
    path: '/api/evict',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ key: 'job:2', ids: [id], reason: 'hangs' }),
  })
  expect(status).toBe(200)
  const losses = await until('both are listed', async () => {
    const seen = await opened.view<LossesJson>('view=losses')
    return seen.matching === 2 && seen
  })
  const [last, first] = losses.rows
  expect(last).toMatchObject({ key: 'job:2', end: 'evicted', reason: 'hangs' })
  expect(first).toMatchObject({ key: 'job:1', end: 'expired', owner: { label: 'web-1', pid: process.pid } })
  // Nobody knows it if the first look came late, as on a busy machine.
  expect(first?.ttlMs ?? 8000).toBeGreaterThan(1000)
  expect(losses.history).toMatchObject({ expired: 1, evicted: 1 })
  const only = async (query: string) =>
    (await opened.view<LossesJson>(`view=losses&${query}`)).rows.map(({ key }) => key)
  expect(await only('show=expired')).toEqual(['job:1'])
  expect(await only('show=evicted')).toEqual(['job:2'])
  expect(await only('search=JOB:1')).toEqual(['job:1'])
  expect(await only('search=web-1')).toEqual(['job:2', 'job:1'])
})

test('a history in a file is there after a restart, with the time in which nobody looked', async () => {
  {
    await using first = await open(locks, { record: { file } })
    await lose('job:1')
    await until('the loss is seen', async () => (await first.view('')).history.expired === 1)
  }
  // The time without a look has to be longer than what looks at very many keys may take.
  const database = openDatabase(file, undefined)
  database.exec('update hold set from_at = from_at - 60000, until_at = until_at - 60000')
  database.exec('update watched set from_at = from_at - 60000, until_at = until_at - 60000')
  database.close()
  await locks.acquire('job:1')
  await using second = await open(locks, { record: { file, keep: '1h' } })
  const key = await until('it has looked', async () => {
    const seen = await second.view<KeyJson>('key=job:1')
    return seen.holds.length === 2 && seen
  })
  expect(key.holds.map(({ end }) => end)).toEqual(['expired', undefined])
  expect(key.watched).toHaveLength(2)
  expect(key.history.expired).toBe(1)
})

test('a hold whose end nobody saw is unclear, and what is too old is not read', async () => {
  const now = Date.now()
  const hold = { id: 'a', fence: 7n, owner: { host: 'h', pid: 1 }, units: 1, limit: 1, fromAt: now - 50_000 }
  const first = new RecordFile(file, { keepMs: 3_600_000, store: undefined })
  const watched = { fromAt: now - 60_000, untilAt: now - 40_000 }
  const old = { ...hold, id: 'b', untilAt: now - 3_700_000, end: 'expired' as const }
  first.save(
    [
      { key: 'open', hold },
      { key: 'old', hold: old },
    ],
    watched,
    now - 7_200_000,
  )
  first.close()
  await using opened = await open(locks, { record: { file, keep: '1h' } })
  const { holds } = await opened.view<KeyJson>('key=open')
  expect(holds).toMatchObject([{ id: 'a', fence: '7', end: 'unclear' }])
  expect((await opened.view<LossesJson>('view=losses')).matching).toBe(0)
})

test('rows that cannot be read are left out, and a file of something else is refused', () => {
  const history = new RecordFile(file, { keepMs: 60_000, store: undefined })
  const owner = { host: 'h', pid: 1 }
  const hold = { id: 'a', fence: 1n, owner, units: 1, limit: 1, fromAt: Date.now() }
  const foreign = { ...hold, id: 'b', owner: { text: 'by hand' } }
  history.save(
    [hold, foreign].map((each) => ({ key: 'k', hold: each })),
    { fromAt: 0, untilAt: Date.now() },
    0,
  )
  history.close()
  const database = openDatabase(file, undefined)
  database.exec(
    "insert into hold select 'bad', id, fence, 'no json', 1, 1, 1, null, null, null, null, null from hold",
  )
  database.exec(
    "insert into hold select 'worse', id, 'x', owner, 1, 1, 1, null, null, null, null, null from hold limit 1",
  )
  for (const [key, wrong] of Object.entries({
    units: "'many'",
    id: "x'00'",
    end: "'odd'",
    until_at: "'late'",
  }))
    database.exec(
      `insert into hold select '${key}', * from (select id, fence, owner, units, unit_limit, from_at, until_at, end, reason, ttl_ms, renewed_at from hold where key = 'k' and id = 'a');
      update hold set ${key} = ${wrong} where key = '${key}'`,
    )
  database.exec(
    `insert into hold select 'odd', id, fence, '{"host":5,"pid":"6","label":7}', 1, 1, ${Date.now()}, null, null, null, null, null from hold where key = 'k' and id = 'a'`,
  )
  database.close()
  const again = new RecordFile(file, { keepMs: 60_000, store: undefined })
  const odd = { text: '{"host":5,"pid":"6","label":7}' }
  const holds = again.load('').holds.map((each) => [each.key, each.hold.id, each.hold.owner])
  expect(holds.sort()).toEqual([
    ['k', 'a', owner],
    ['k', 'b', { text: 'by hand' }],
    ['odd', 'a', odd],
  ])
  again.close()

  const other = join(folder, 'other.db')
  const mine = openDatabase(other, undefined)
  mine.exec('create table mine (it)')
  mine.close()
  expect(() => createDashboard(locks, { record: { file: other } })).toThrow(
    /^Expected `record.file` to be a file that the dashboard has made, or none yet, got /,
  )
  expect(() => createDashboard(locks, { record: { file: join(folder, 'none', 'history.db') } })).toThrow(
    /^Expected `record.file` to be in a folder that exists, got "/,
  )
  expect(() => createDashboard(locks, { record: { file: folder } })).toThrow(
    /^The history of the dashboard cannot be opened at /,
  )
})

test('one dashboard at a time has the file, and it stays with its store', async () => {
  const first = createDashboard(locks, { record: { file, store: 'redis a:6379' } })
  expect(() => createDashboard(locks, { record: { file } })).toThrow(
    /^Expected `record.file` to be a file that no other dashboard has open, got .* Give each dashboard a file of its own\.$/,
  )
  await first.close()
  expect(() => createDashboard(locks, { record: { file, store: 'redis b:6379' } })).toThrow(
    /^Expected `record.file` to be a history of the store "redis b:6379", got .*, which is of "redis a:6379"\. /,
  )
  // What was refused has closed the file again.
  await createDashboard(locks, { record: { file, store: 'redis a:6379' } }).close()
  await createDashboard(locks, { record: { file } }).close()
})

test('a file that cannot be written to is told of once, and the history goes on in memory', async () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  try {
    await using opened = await open(locks, { record: { file } })
    const database = openDatabase(file, undefined)
    database.exec('drop table watched')
    database.close()
    await lose('job:1')
    await until('the loss is known', async () => (await opened.view('')).history.expired === 1)
    expect(warn).toHaveBeenCalledTimes(1)
    expect(warn.mock.calls[0]?.[0]).toMatch(/^The history of the dashboard cannot be written to /)
  } finally {
    warn.mockRestore()
  }
})

test.each([
  [{ record: 'yes' }, /^Expected `record` to be a boolean, or an object such as /],
  [{ record: { keep: '1s' } }, /^Expected `record.keep` to be a duration from 60000 ms to 24 days/],
  [{ record: { file: '' } }, /^Expected `record.file` to be the path of a file, got ""\.$/],
  [{ record: { store: '' } }, /^Expected `record.store` to be the name of the store, got ""\.$/],
  [{ record: { path: 'x' } }, /path/],
])('%j is refused', (options, message) => {
  expect(() => createDashboard(locks, options as DashboardOptions)).toThrow(message)
})

test('the page says how long the history is kept', async () => {
  const browser = await startBrowser()
  try {
    await using opened = await open(locks, { record: { keep: '10m' } })
    await using visited = await visit(browser, `${opened.server.url}#/losses`)
    await visited.page.getByText('It is kept for 10m, and the dashboard looks all the time.').waitFor()
  } finally {
    await browser.close()
  }
})

test('the number of expired holds leads to the list of them, and a key shows when nobody looked', async () => {
  const browser = await startBrowser()
  try {
    const past = new RecordFile(file, { keepMs: 3_600_000, store: undefined })
    const now = Date.now()
    const hold = {
      id: 'a',
      fence: 7n,
      owner: { host: 'h', pid: 1 },
      units: 1,
      limit: 1,
      fromAt: now - 900_000,
    }
    const end = { untilAt: now - 800_000, end: 'expired', ttlMs: 30_000, renewedAt: now - 830_000 } as const
    past.save([{ key: 'job:1', hold: { ...hold, ...end } }], { fromAt: now - 1e6, untilAt: now - 7e5 }, 0)
    past.close()
    await locks.acquire('job:1')
    await using opened = await open(locks, { record: { file } })
    await using visited = await visit(browser, opened.server.url)
    const { page } = visited
    await page.getByRole('link', { name: /^expired since .* 1$/ }).click()
    const row = page.getByRole('row', { name: /job:1/ })
    await row.getByText(/^expired: not renewed after .*, ttl 30s$/).waitFor()
    await row.getByRole('link', { name: 'job:1' }).click()
    await page.getByRole('cell', { name: /^nobody looked from / }).waitFor()
    await page
      .locator('.picture .unseen title', { hasText: 'nobody looked from' })
      .waitFor({ state: 'attached' })
    expect(visited.wrongs).toEqual([])
  } finally {
    await browser.close()
  }
})

test('the picture of a key is grey where its holds are left out, and where its queue is not known', async () => {
  const browser = await startBrowser()
  try {
    const past = new RecordFile(file, { keepMs: 3_600_000, store: undefined })
    const beganAt = Date.now() - 600_000
    const holds = Array.from({ length: 300 }, (_, n) => ({
      key: 'job:1',
      hold: {
        ...{ id: `${n}`, fence: BigInt(n), owner: { host: 'h', pid: 1 }, units: 1, limit: 1 },
        ...{ fromAt: beganAt + n * 1000, untilAt: beganAt + n * 1000 + 500, end: 'released' as const },
      },
    }))
    past.save(holds, { fromAt: beganAt - 60_000, untilAt: Date.now() }, 0)
    past.close()
    await using opened = await open(locks, { record: { file } })
    await using visited = await visit(browser, `${opened.server.url}#/key?key=job%3A1`)
    const { page } = visited
    const grey = page.locator('.picture .unseen title')
    await page.getByRole('combobox', { name: 'How far back' }).selectOption('1 hour')
    const texts = async () => (await grey.allTextContents()).join('\n')
    const both = /^holds may be left out before .*\nthe queue is not known before /
    await until('both are grey', async () => both.test(await texts()))
    await page.getByRole('button', { name: 'All 201 of the timeline' }).dispatchEvent('click')
    await page.getByRole('cell', { name: /^holds before .* may be left out$/ }).waitFor()
    expect(visited.wrongs).toEqual([])
  } finally {
    await browser.close()
  }
})
