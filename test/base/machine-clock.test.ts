import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { type ClockReadings, countsFromBoot } from '../../src/base/machine-clock.ts'

const HOUR = 3_600_000
const wallMs = 1_800_000_000_000

test.each<[string, Omit<ClockReadings, 'wallMs'>]>([
  ['a server', { hrtimeMs: 500 * HOUR, processMs: 20, uptimeMs: 500 * HOUR }],
  ['a laptop that has slept', { hrtimeMs: 2 * HOUR, processMs: HOUR, uptimeMs: 90 * HOUR }],
  ['a container with an uptime of its own', { hrtimeMs: 90 * HOUR, processMs: HOUR, uptimeMs: HOUR }],
  [
    'a process that has run since shortly after the boot',
    { hrtimeMs: HOUR, processMs: HOUR - 2000, uptimeMs: HOUR },
  ],
  ['the first process of a small virtual machine', { hrtimeMs: 420, processMs: 30, uptimeMs: 430 }],
  ['a machine that does not tell its uptime', { hrtimeMs: HOUR, processMs: 20, uptimeMs: undefined }],
])('a clock that counts from the boot is recognised on %s', (_, readings) => {
  expect(countsFromBoot({ ...readings, wallMs })).toBe(true)
})

test.each<[string, Omit<ClockReadings, 'wallMs'>]>([
  ['the start of the process', { hrtimeMs: 61.6, processMs: 61.7, uptimeMs: HOUR }],
  ['the start of an old process', { hrtimeMs: 50 * HOUR, processMs: 50 * HOUR, uptimeMs: 60 * HOUR }],
  ['the first look at it', { hrtimeMs: 0.001, processMs: 800, uptimeMs: HOUR }],
  ['the start of a process soon after the boot', { hrtimeMs: 40, processMs: 40, uptimeMs: 2000 }],
  ['the start of a process, and the uptime is unknown', { hrtimeMs: 40, processMs: 40, uptimeMs: undefined }],
  ['1970', { hrtimeMs: wallMs - 5, processMs: 40, uptimeMs: HOUR }],
])('a clock that counts from %s is not taken for it', (_, readings) => {
  expect(countsFromBoot({ ...readings, wallMs })).toBe(false)
})

test('a runtime of any name whose clock counts from the start of the process is refused, by the store and by holdfast run', () => {
  const script = `
    const startedAt = process.hrtime.bigint()
    const { bigint } = process.hrtime
    const count = () => bigint() - startedAt
    process.hrtime = Object.assign(() => [Number(count() / 1_000_000_000n), Number(count() % 1_000_000_000n)], { bigint: count })
    const { openSqlite } = await import(${JSON.stringify(sourceOf('stores/sqlite/index.ts'))})
    await openSqlite(process.argv[1]).catch(({ code, message }) => console.log(code, message))
    const { deadlineIn } = await import(${JSON.stringify(sourceOf('cli/run/deadline.ts'))})
    try { deadlineIn(1000) } catch ({ name, message }) { console.log(name, message) }`
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--import',
      'tsx',
      '--input-type=module',
      '--eval',
      script,
      join(fileURLToPath(import.meta.url), 'locks.db'),
    ],
    { encoding: 'utf8' },
  )
  const needs =
    'needs the clock that all processes of the machine share, and process.hrtime() of this runtime counts from the start of the process. Use Node.js; or, on Linux, Bun, or Deno with --allow-ffi.'
  expect({ stdout, stderr }).toEqual({
    stdout: `store-refused The sqlite store ${needs}\nUsageError This command ${needs}\n`,
    stderr: '',
  })
})

function sourceOf(path: string): string {
  return fileURLToPath(new URL(`../../src/${path}`, import.meta.url))
}
