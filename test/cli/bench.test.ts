import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { measure } from '../../src/cli/bench/measure.ts'
import { startEtcd } from '../servers/etcd-server.ts'
import { freePort } from '../servers/free-port.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite, sharedStores, type TestStore } from './stores.ts'

const WORKS = ['question', 'free-key', 'free-keys', 'hand-over', 'waiters', 'renewal']
const SMALL = ['bench', '--for', '100ms', '--waiters', '5', '--flight', '5', '--leases', '5']

interface Row {
  readonly work: string
  readonly count: number
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly longestMs: number
}

let shell: Shell
beforeEach(() => {
  shell = new Shell()
})
afterEach(() => shell.close())

async function openEtcd(): Promise<TestStore> {
  const server = await startEtcd()
  return { url: server.url.replace('http:', 'etcd:'), [Symbol.asyncDispose]: () => server.close() }
}

describe.each([...sharedStores, { name: 'postgres', open: startPostgres }, { name: 'etcd', open: openEtcd }])(
  'on $name',
  ({ open }) => {
    test('bench measures each work, and leaves no key behind', async () => {
      await using store = await open()
      const env = { HOLDFAST_STORE: store.url }
      const { code, stdout, stderr } = await shell.run([...SMALL, '--json'], { env })
      expect([code, stderr]).toEqual([0, ''])
      const { isComplete, rows } = JSON.parse(stdout) as { isComplete: boolean; rows: Row[] }
      expect(isComplete).toBe(true)
      expect(rows.map(({ work }) => work)).toEqual(WORKS)
      for (const { count, perSecond, p50Ms, p99Ms, longestMs } of rows) {
        expect(count).toBeGreaterThan(0)
        expect(perSecond).toBeGreaterThan(0)
        expect([p50Ms, p99Ms, longestMs]).toEqual([p50Ms, p99Ms, longestMs].sort((one, other) => one - other))
      }
      expect(await shell.run(['ls', '--json'], { env })).toMatchObject({ code: 0, stdout: '' })
    })
  },
)

test('bench prints a table for people, and its titles name the numbers that were asked for', async () => {
  await using store = await openSqlite()
  const { code, stdout } = await shell.run([...SMALL, '--store', store.url])
  expect(code).toBe(0)
  const [head, , titles, ...rows] = stdout.trimEnd().split('\n')
  expect(head).toMatch(/^Locks on sqlite .*locks\.db, from one process of Node\.js v\d/)
  expect(titles).toMatch(/^WORK +A SECOND +P50 +P99 +LONGEST$/)
  expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual([
    'a question about a free key',
    'take and release a free key',
    'the same, 5 keys at a time',
    'hand-over to a client that waits',
    'a turn among 5 waiters',
    'renew a lease, 5 at a time',
  ])
  for (const row of rows) expect(row).toMatch(/ [\d,]+ +[\d.]+ ms +[\d.]+ ms +[\d.]+ ms$/)
})

/** How `bench` says that it has measured the first row, and not all. */
const FORMATS = [
  { options: [], part: /^a question about a free key /m, missing: 'renew a lease' },
  {
    options: ['--json'],
    part: /^\{"isComplete":false,.*"rows":\[\{"work":"question",.*\}\]\}\n$/,
    missing: '"renewal"',
  },
]

test.each(FORMATS)(
  'bench $options that is interrupted says what it has measured, gives its keys back, and exits with 130',
  async ({ options, part, missing }) => {
    await using store = await openSqlite()
    const env = { HOLDFAST_STORE: store.url }
    const going = shell.start(['bench', '--for', '2s', ...options], { env })
    // The second row: the first one takes no key.
    await until('the second row is measured', async () => {
      const { stdout } = await shell.run(['ls', '--json'], { env })
      return stdout.includes('holdfast-bench:') || undefined
    })
    process.kill(going.pid, 'SIGINT')
    expect(await going.exit).toBe(130)
    expect(going.stdout).toMatch(part)
    expect(going.stdout).not.toContain(missing)
    expect(going.stderr).toBe('')
    expect((await shell.run(['ls', '--json'], { env })).stdout).toBe('')
  },
)

test.each(FORMATS)(
  'bench $options whose store goes away half-way says what it has measured, and exits with 69',
  async ({ options, part }) => {
    const store = await startRedis()
    const going = shell.start(['bench', '--for', '2s', '--store', store.url, ...options])
    await until('the second row is measured', async () => {
      return (await store.command('KEYS', '*holdfast-bench:*'))?.toString() !== '' || undefined
    })
    await store.close()
    expect(await going.exit).toBe(69)
    expect(going.stdout).toMatch(part)
    expect(going.stderr).toMatch(/^holdfast: [^\n]+\n$/)
  },
)

test('bench without a store exits with 69, and refuses numbers that make no sense with 64', async () => {
  const away = await shell.run(['bench', '--store', `redis://127.0.0.1:${await freePort()}`])
  expect([away.code, away.stdout]).toEqual([69, ''])
  expect(away.stderr).toMatch(/^holdfast: [^\n]+\n$/)
  for (const wrong of [
    ['--for', '1ms'],
    ['--waiters', '0'],
    ['--leases', 'x'],
    ['now'],
    ['--store', 'memory:'],
  ]) {
    const { code, stderr } = await shell.run(['bench', ...wrong])
    expect(code).toBe(64)
    expect(stderr).toMatch(/^holdfast: Expected [^\n]+\n$/)
  }
})

describe('a measurement', () => {
  const unending = new AbortController().signal

  test('tells the times of the work, from all loops', async () => {
    let begun = 0
    const loops = new Set<number>()
    const work = async (index: number) => {
      loops.add(index)
      await new Promise((resolve) => setImmediate(resolve))
      begun += 1
      // One in a hundred and fifty is slow.
      return begun % 150 === 0 ? 40 : 2
    }
    const { count, perSecond, p50Ms, p99Ms, longestMs } = await measure({
      ...{ work, atOnce: 3, durationMs: 200, signal: unending },
    })
    expect(loops).toEqual(new Set([0, 1, 2]))
    expect(count).toBeGreaterThanOrEqual(150)
    expect(count).toBeLessThan(begun)
    expect(perSecond).toBeLessThanOrEqual(count / 0.2)
    expect([p50Ms, p99Ms].map(Math.round)).toEqual([2, 2])
    expect(Math.round(longestMs)).toBe(40)
  })

  test('ends all loops with the first failure, which it tells', async () => {
    let calls = 0
    const work = async (index: number) => {
      calls += 1
      await new Promise((resolve) => setTimeout(resolve, 1))
      if (index === 1) throw new Error('away')
      return 1
    }
    const measuring = measure({ work, atOnce: 2, durationMs: 3_600_000, signal: unending })
    await expect(measuring).rejects.toThrow('away')
    const told = calls
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(calls).toBeLessThanOrEqual(told + 1)
  })
})
