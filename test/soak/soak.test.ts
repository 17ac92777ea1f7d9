import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { Summary } from '../../soak/report.ts'
import type { Sample } from '../../soak/sample.ts'
import { until } from '../servers/until.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-soak-test-'))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

it('a soak records samples of every store that was asked for, and judges and draws them', async () => {
  const args = ['--for', '6s', '--store', 'sqlite', '--store', 'redis', '--out', folder, '--json']
  const { stdout } = await soak(args)
  const summaries = JSON.parse(stdout) as Summary[]
  // In the order of the options. On a busy machine calls may fail: their number is not this test's business.
  expect(summaries.map(({ store }) => store)).toEqual(['sqlite', 'redis'])
  for (const { store, cycles, series } of summaries) {
    expect(cycles).toBeGreaterThan(0)
    expect(series.map(({ label }) => label)).toContain('heap of two processes')
    expect(samplesOf(store).length).toBe(6)
    expect(readFileSync(join(folder, `${store}.svg`), 'utf8')).toContain('heap of two processes')
  }
  expect(samplesOf('redis').every(({ memoryBytes, connections }) => memoryBytes > 0 && connections > 0)).toBe(
    true,
  )
  expect(readFileSync(join(folder, 'RESULTS.md'), 'utf8')).toMatch(/## sqlite[\s\S]+## redis/)
})

it('Ctrl-C ends a soak early, and what was recorded until then is judged', async () => {
  const args = ['--for', '1h', '--every', '1s', '--store', 'redis', '--out', folder, '--json']
  const program = spawn(process.execPath, ['--import', 'tsx', 'soak/run.ts', ...args], { detached: true })
  let [stdout, stderr] = ['', '']
  program.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  program.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const ended = once(program, 'close')
  try {
    await until('there are samples', () => stderr.split(' cycles').length > 4)
    // A terminal sends it to all processes of the group.
    process.kill(-(program.pid ?? 0), 'SIGINT')
    await ended
  } finally {
    program.kill('SIGKILL')
  }
  const [summary] = JSON.parse(stdout) as Summary[]
  expect(summary, stderr).toMatchObject({ store: 'redis' })
  expect(samplesOf('redis').length).toBeGreaterThan(3)
})

it('a soak says what it expects of its options', async () => {
  expect(await soak(['--store', 'mysql'])).toMatchObject({
    code: 64,
    stderr: 'Expected --store to be one of redis, postgres, etcd, sqlite, got mysql.\n',
  })
  expect((await soak(['--for', 'ever'])).stderr).toMatch(/^Expected `--for` to be/)
  expect((await soak(['--for', '10s', '--every', '1m'])).stderr).toBe(
    'Expected --every to be at most --for, got 60000 ms and 10000 ms.\n',
  )
})

function samplesOf(store: string): Sample[] {
  const lines = readFileSync(join(folder, `${store}.jsonl`), 'utf8')
    .trim()
    .split('\n')
  return lines.map((line) => JSON.parse(line) as Sample)
}

interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

function soak(args: readonly string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, ['--import', 'tsx', 'soak/run.ts', ...args], (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr })
    })
  })
}
