import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { RecordFile } from '../../src/dashboard/record-file.ts'
import type { LossesJson } from '../../src/dashboard/view-json.ts'
import { createLocks } from '../../src/index.ts'
import type { KeyHold } from '../../src/room-watch/hold-record.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { openDatabase } from '../../src/stores/sqlite/sqlite-engine.ts'
import { ask, serve } from './dashboard-server.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-record-file-'))
  file = join(folder, 'history.db')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

function kept(key: string, hold: Partial<KeyHold['hold']> = {}): KeyHold {
  return {
    key,
    hold: { id: key, fence: 1n, owner: {}, units: 1, limit: 1, fromAt: Date.now() - 20_000, ...hold },
  }
}

/** The keys of the losses that a dashboard with these options shows, after its first look. */
async function lossesOf(options: DashboardOptions): Promise<readonly string[]> {
  const locks = createLocks(memoryStore())
  const dashboard = createDashboard(locks, options)
  const server = await serve(dashboard)
  try {
    const { text } = await ask(server, { path: '/api/view?view=losses' })
    return (JSON.parse(text) as LossesJson).rows.map(({ key }) => key)
  } finally {
    await dashboard.close()
    await server[Symbol.asyncDispose]()
    await locks.close()
  }
}

test('a dashboard neither shows nor ends what a file has of keys outside its prefix', async () => {
  const now = Date.now()
  const evicted = { untilAt: now - 10_000, end: 'evicted', reason: 'private' } as const
  const all = new RecordFile(file, { keepMs: 60_000, store: undefined })
  const holds = [
    kept('payroll:alice', evicted),
    kept('shop:1', evicted),
    ...[kept('SHOP:2', evicted), kept('shop', evicted), kept('payroll:bob'), kept('shop:3')],
  ]
  all.save(holds, { fromAt: now - 20_000, untilAt: now - 5000 }, 0)
  all.close()
  expect(await lossesOf({ prefix: 'shop:', record: { file } })).toEqual(['shop:1'])
  const database = openDatabase(file, undefined)
  const ends = database.prepare('select key, end from hold where reason is null order by key').all()
  database.close()
  expect(ends).toMatchObject([
    { key: 'payroll:bob', end: null },
    { key: 'shop:3', end: 'unclear' },
  ])
  expect(await lossesOf({ record: { file } })).toHaveLength(4)
})

test('a file that another connection has locked costs no time, and is written after a later look', () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const history = new RecordFile(file, { keepMs: 3_600_000, store: undefined })
  const other = openDatabase(file, undefined)
  try {
    history.load('')
    other.exec('begin immediate')
    const now = Date.now()
    const saveAt = (untilAt: number) => history.save([kept('a')], { fromAt: now, untilAt }, 0)
    const begunMs = performance.now()
    for (let n = 0; n < 20; n += 1) expect(saveAt(now + n * 1000)).toBe(false)
    // SQLite waited a second for each of them.
    expect(performance.now() - begunMs).toBeLessThan(5000)
    other.exec('rollback')
    expect(saveAt(now + 20_000)).toBe(true)
    expect(other.prepare('select key from hold').all()).toMatchObject([{ key: 'a' }])
    expect(warn).not.toHaveBeenCalled()

    other.exec('begin immediate')
    for (const afterMs of [0, 59_000]) expect(saveAt(now + 30_000 + afterMs)).toBe(false)
    expect(warn).not.toHaveBeenCalled()
    for (const afterMs of [60_000, 61_000]) expect(saveAt(now + 30_000 + afterMs)).toBe(false)
    expect(warn).toHaveBeenCalledTimes(1)
  } finally {
    other.close()
    history.close()
    warn.mockRestore()
  }
})

test('a file has no times after the last look, also if the clock was set back', () => {
  const now = Date.now()
  const first = new RecordFile(file, { keepMs: 3_600_000, store: undefined })
  first.save([], { fromAt: now - 60_000, untilAt: now + 600_000 }, 0)
  first.save([], { fromAt: now + 700_000, untilAt: now + 800_000 }, 0)
  expect(first.load('').watched).toMatchObject([{ fromAt: now - 60_000 }])
  expect(first.load('').watched[0]?.untilAt).toBeLessThan(now + 300_000)
  first.save([], { fromAt: now - 60_000, untilAt: now - 10_000 }, 0)
  first.close()
  const database = openDatabase(file, undefined)
  expect(database.prepare('select * from watched').all()).toEqual([
    { from_at: now - 60_000, until_at: now - 10_000 },
  ])
  database.close()
})
