import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { childrenOf, Shell } from '../cli/holdfast-process.ts'
import { sharedStores } from '../cli/stores.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'

let shell: Shell
let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-torture-'))
  shell = new Shell({ TMPDIR: folder })
})
afterEach(async () => {
  await shell.close()
  rmSync(folder, { recursive: true, force: true })
})

const out = () => join(folder, 'out')
const quick = (...more: string[]) => ['torture', '--ttl', '1s', '--settle', '20s', '--out', out(), ...more]

describe.each(sharedStores)('the torture on $name', ({ name, open }) => {
  test('finds nothing broken, and leaves a report and no key behind', async () => {
    await using store = await open()
    const args = quick('--for', '8s', '--json', '--store', store.url)
    const { code, stdout, stderr } = await shell.run(args)
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const verdict = lines.at(-1)
    const broken = verdict.checks.filter((check: { broken: number }) => check.broken > 0)
    expect({ broken, code, stderr }).toEqual({ broken: [], code: 0, stderr: '' })

    const kinds = name === 'sqlite' ? ['kill', 'pause', 'clock'] : ['kill', 'pause', 'cut', 'outage', 'clock']
    expect(verdict).toMatchObject({ tag: 'verdict', holds: true, store: name, nemesis: kinds, failures: [] })
    expect(lines.some(({ tag, kind }) => tag === 'fault' && kinds.includes(kind))).toBe(true)
    expect(verdict.numbers.granted).toBeGreaterThan(50)
    const examined = (check: string) =>
      verdict.checks.find((one: { name: string }) => one.name === check).examined
    expect(examined('fenced-register')).toBeGreaterThan(50)
    // Each process takes each key once more at the end.
    expect(examined('recovery')).toBe(4 * 7)

    const page = readFileSync(verdict.timeline, 'utf8')
    expect(page).toContain('no promise was broken')
    expect(page).not.toMatch(/https?:\/\/(?!www\.w3\.org)/)
    expect(JSON.parse(readFileSync(join(out(), 'verdict.json'), 'utf8'))).toEqual(verdict)
    expect((await shell.run(['ls', '--store', store.url])).stdout).toBe('')
  })
})

test('processes that are alone with their store break every promise, and the evidence is named', async () => {
  const { code, stdout } = await shell.run(quick('--for', '2s', '--nemesis', 'none', '--store', 'memory:'))
  expect(code).toBe(1)
  expect(stdout).toMatch(/^ {2}overlapping holds +[1-9]\d* {2}of \d+ holds {2}BROKEN$/m)
  expect(stdout).toMatch(
    /held at the same time: process \d \(place \d\) under fence \d+ from [\d.]+ s to [\d.]+ s; process/,
  )
  expect(stdout).toMatch(/^ {2}lost updates without +[1-9]/m)
  expect(stdout).toContain('BROKEN: ')
  expect(stdout).not.toContain('\x1b')
})

test('a program breaks the server, and mends it again before the verdict', async () => {
  await using redis = await startRedis()
  const calls = join(folder, 'calls')
  const program = join(folder, 'pause-redis.sh')
  writeFileSync(
    program,
    `#!/bin/sh\necho "$1" >> ${calls}\nif [ "$1" = begin ]; then kill -STOP ${redis.pid}; else kill -CONT ${redis.pid}; fi\n`,
  )
  chmodSync(program, 0o755)
  const args = quick(
    '--for',
    '6s',
    '--nemesis',
    'none',
    '--on-fault',
    program,
    '--store',
    redis.url,
    '--json',
  )
  const { code, stdout } = await shell.run(args)
  const verdict = JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
  expect(verdict.checks.filter((check: { broken: number }) => check.broken > 0)).toEqual([])
  expect(code).toBe(0)
  expect(verdict.numbers.faults.server).toBeGreaterThan(0)
  const called = readFileSync(calls, 'utf8').trim().split('\n')
  expect(called).toEqual(called.map((_, index) => (index % 2 === 0 ? 'begin' : 'end')))
  expect(called.length % 2).toBe(0)
})

test('a program that lets the server lose its data breaks nothing when the run forgets', async () => {
  await using redis = await startRedis()
  const program = join(folder, 'flush-redis.mjs')
  writeFileSync(
    program,
    `#!${process.execPath}
import { connect } from 'node:net'
if (process.argv[2] === 'begin') setTimeout(() => {
  const socket = connect(${redis.port}, '127.0.0.1', () => socket.write('FLUSHALL\\r\\n'))
  socket.once('data', () => socket.destroy())
}, 1500)
`,
  )
  chmodSync(program, 0o755)
  const faults = ['--nemesis', 'none', '--on-fault', program, '--forgets']
  const { code, stdout } = await shell.run(quick('--for', '12s', ...faults, '--store', redis.url, '--json'))
  const verdict = JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
  expect(verdict.checks.filter((check: { broken: number }) => check.broken > 0)).toEqual([])
  expect(code).toBe(0)
  expect(verdict.numbers.faults.server).toBeGreaterThan(0)
})

test('a program that fails ends the run, which says so', async () => {
  const calls = join(folder, 'calls')
  const program = join(folder, 'fails.sh')
  writeFileSync(program, `#!/bin/sh\necho "$1" >> ${calls}\nexit 3\n`)
  chmodSync(program, 0o755)
  const { code, stderr } = await shell.run(quick('--for', '30s', '--nemesis', 'none', '--on-fault', program))
  expect(code).toBe(1)
  expect(stderr).toBe('holdfast: the program of --on-fault failed at begin: exit code 3\n')
  // It may have broken half of the server before it failed.
  expect(readFileSync(calls, 'utf8')).toBe('begin\nend\n')
})

test('a program that cannot be started any more ends the run, which says so', async () => {
  const programs = join(folder, 'programs')
  mkdirSync(programs)
  const program = join(programs, 'vanishes.sh')
  writeFileSync(program, `#!/bin/sh\nrm -r ${programs}\ntouch ${programs}\n`)
  chmodSync(program, 0o755)
  const { code, stderr } = await shell.run(quick('--for', '30s', '--nemesis', 'none', '--on-fault', program))
  expect(code).toBe(1)
  expect(stderr).toBe('holdfast: the program of --on-fault failed at end: spawn ENOTDIR\n')
})

test('an unexpected error ends the command and all its processes', async () => {
  const env = { NODE_OPTIONS: `--import ${fileURLToPath(new URL('full-disk.mjs', import.meta.url))}` }
  await using redis = await startRedis()
  // Its proxies would keep the command alive.
  const args = quick('--for', '1m', '--nemesis', 'cut', '--store', redis.url)
  const { code, stderr } = await shell.run(args, { env })
  expect(code).toBe(70)
  expect(stderr).toContain('ENOSPC')
})

test('a process with a full history waits for the last round, and the verdict says so', async () => {
  const env = { NODE_OPTIONS: `--import ${fileURLToPath(new URL('full-history.mjs', import.meta.url))}` }
  const { code, stdout, stderr } = await shell.run(quick('--for', '6s', '--nemesis', 'none'), { env })
  expect({ code, stderr }, stdout).toEqual({ code: 0, stderr: '' })
  expect(stdout).toMatch(/^Full history: 1 process, first after .*, took keys only in the last round/m)
  expect(stdout).toMatch(/^ {2}calls failed after the faults +0 {2}of 28 calls {2}ok$/m)
})

test('a process that crashes by a signal ends the run, which says so', async () => {
  const torture = shell.start(quick('--for', '10m', '--nemesis', 'none'))
  const workers = await until('the processes are there', () => {
    const files = existsSync(join(out(), 'history')) ? readdirSync(join(out(), 'history')) : []
    return files.filter((name) => name.startsWith('worker-')).length === 4
  }).then(() => childrenOf(torture.pid))
  process.kill(workers[0] ?? 0, 'SIGSEGV')
  expect(await torture.exit, torture.stdout).toBe(1)
  expect(torture.stderr).toMatch(/^holdfast: process [1-4] ended by SIGSEGV\n$/)
  expect(torture.stdout).toMatch(/^The run did not go as planned: process [1-4] ended by SIGSEGV\.$/m)
})

test('a run that is too short for a fault says which one did not come', async () => {
  const { stdout } = await shell.run(quick('--for', '1s', '--nemesis', 'kill,pause,kill', '--json'))
  const { nemesis, numbers, faultsNotSeen } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
  expect(nemesis).toEqual(['kill', 'pause'])
  // On a busy machine there is no time for the first one either.
  expect(Object.keys(numbers.faults).length).toBeLessThanOrEqual(1)
  expect(faultsNotSeen).toEqual(nemesis.filter((kind: string) => numbers.faults[kind] === undefined))
})

test('Ctrl-C ends the faults early, and the verdict comes all the same', async () => {
  const torture = shell.start(quick('--for', '10m'))
  await torture.prints('pause  ')
  torture.signal('SIGINT')
  expect(await torture.exit, torture.stdout).toBe(130)
  expect(torture.stdout).toContain('No promise was broken.')
  expect(shell.processes()).toEqual([])
  expect(statSync(join(out(), 'timeline.html')).size).toBeGreaterThan(10_000)
})

test('a closed output ends the faults early, and the program mends the server', async () => {
  const calls = join(folder, 'calls')
  const program = join(folder, 'notes.sh')
  writeFileSync(program, `#!/bin/sh\necho "$1" >> ${calls}\n`)
  chmodSync(program, 0o755)
  const torture = shell.start(quick('--for', '10m', '--nemesis', 'none', '--on-fault', program))
  await until('the program breaks the server', () => existsSync(calls))
  torture.closeOutput()
  expect(await torture.exit, torture.stderr).toBe(74)
  const called = readFileSync(calls, 'utf8').trim().split('\n')
  expect(called).toEqual(called.map((_, index) => (index % 2 === 0 ? 'begin' : 'end')))
  expect(called.at(-1)).toBe('end')
  expect(JSON.parse(readFileSync(join(out(), 'verdict.json'), 'utf8'))).toMatchObject({ holds: true })
})

test('no process is left behind when the command itself is killed', async () => {
  const torture = shell.start(quick('--for', '10m', '--nemesis', 'pause'))
  await torture.prints('SIGSTOP')
  torture.signal('SIGKILL')
  await torture.exit
  // `shell.close()` waits for it.
})

test.each([
  [
    ['--nemesis', 'cut', '--store', 'sqlite:./x.db'],
    'without cut for this store (there is no network to sqlite:), got "cut"',
  ],
  [
    ['--nemesis', 'outage', '--store', 'rediss://host'],
    'without outage for this store (TLS checks the name of the server',
  ],
  [
    ['--nemesis', 'cut', '--store', 'redis+sentinel://a/m'],
    '(the servers of redis+sentinel: tell their addresses themselves',
  ],
  [
    ['--nemesis', 'fire'],
    '--nemesis to be some of kill, pause, cut, outage, clock, with commas, or none, got "fire"',
  ],
  [['--on-fault', '/nowhere'], '--on-fault to be the path of a program, got "/nowhere"'],
  [['--on-fault', 'test'], '--on-fault to be the path of a program, got "test"'],
  [['--on-fault', 'package.json/x'], '--on-fault to be the path of a program, got "package.json/x"'],
  [['--on-fault', 'package.json'], '--on-fault to be a file that can be executed, got "package.json"'],
  [['--forgets'], 'Expected --on-fault beside --forgets.'],
  [
    ['--ttl', '10s', '--settle', '15s'],
    '--settle to be at least three times --ttl, which is 10.0s, got "15s"',
  ],
  [['--out', '.'], '--out to be a new or empty folder, got "."'],
  [['--out', 'package.json'], '--out to be a new or empty folder, got "package.json"'],
  [['--out', '/dev/null/x'], '--out to be a folder that can be written (ENOTDIR), got "/dev/null/x"'],
  [['--out', '/proc/x'], '--out to be a folder that can be written (ENOENT), got "/proc/x"'],
])('%j is refused in one sentence', async (args, text) => {
  const { code, stdout, stderr } = await shell.run(['torture', ...args])
  expect({ code, stdout }).toEqual({ code: 64, stdout: '' })
  expect(stderr).toContain(text)
  expect(stderr.trim().split('\n')).toHaveLength(1)
})

test('a store that cannot be reached is reported once', async () => {
  const { code, stderr } = await shell.run(quick('--store', 'redis://127.0.0.1:1'))
  expect(code).toBe(69)
  expect(stderr.trim().split('\n')).toHaveLength(1)
})
