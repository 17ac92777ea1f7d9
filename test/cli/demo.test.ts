import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { sharedStores } from './stores.ts'

let shell: Shell
let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-stage-'))
  shell = new Shell({ TMPDIR: folder })
})
afterEach(async () => {
  await shell.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Several tries on a busy machine. */
const TRIES = { timeout: 400_000 }

/** A line that the demo prints with `--json`, as far as it is looked at here. */
interface DemoLine {
  readonly tag: string
  readonly atMs: number
  readonly worker: number
  readonly fault: string
  readonly handOvers: { readonly release: number }
  readonly slowestMs: { readonly term: number; readonly kill: number }
  readonly writes: number
}

/** A demo with at least three faults, unless the machine is too busy for them. */
function demo(faultEveryMs: number): string[] {
  return [
    'demo',
    '--kill-every',
    `${faultEveryMs}ms`,
    '--ttl',
    `${faultEveryMs / 2}ms`,
    '--for',
    `${5 * faultEveryMs}ms`,
  ]
}

/**
 * Runs the demo until it tells its story as it does on an idle machine: each time twice as slowly, because on a busy one
 * a worker also loses a key that nobody took from it.
 */
async function untilUndisturbed(tell: (faultEveryMs: number) => Promise<() => void>): Promise<void> {
  for (let faultEveryMs = 1200; ; faultEveryMs *= 2) {
    const expectStory = await tell(faultEveryMs)
    try {
      return expectStory()
    } catch (error) {
      if (faultEveryMs > 8000) throw error
    }
  }
}

describe.each(sharedStores)('the demo on $name', ({ open }) => {
  test('shows every way in which a hold ends, and finds nothing broken', TRIES, async () => {
    await using store = await open()
    await untilUndisturbed(async (faultEveryMs) => {
      const { code, stdout, stderr } = await shell.run([
        ...demo(faultEveryMs),
        '--json',
        '--store',
        store.url,
      ])
      // However busy the machine is.
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      const events = stdout
        .trimEnd()
        .split('\n')
        .map((line): DemoLine => JSON.parse(line))
      const [summary] = events.filter(({ tag }) => tag === 'summary')
      expect(summary).toMatchObject({ doubleHolders: 0, lostUpdates: 0, fencesOutOfOrder: 0 })
      expect((await shell.run(['ls', '--store', store.url])).stdout).toBe('')
      return () => expectEveryWay(events, faultEveryMs / 2)
    })
  })

  function expectEveryWay(events: readonly DemoLine[], ttlMs: number): void {
    const seen = (tag: string) => events.filter((event) => event.tag === tag)
    expect(
      seen('struck')
        .map(({ fault }) => fault)
        .slice(0, 3),
    ).toEqual(['kill', 'stop', 'term'])
    for (const { worker, fault, atMs } of seen('struck')) {
      expect(seen('took-over')).toContainEqual(
        expect.objectContaining({ from: worker, after: fault, atMs: expect.toSatisfy((at) => at > atMs) }),
      )
    }
    const [stopped] = seen('struck').filter(({ fault }) => fault === 'stop')
    expect(seen('lost')).toEqual([expect.objectContaining({ worker: stopped?.worker })])
    expect(seen('late-write')).toEqual([expect.objectContaining({ worker: stopped?.worker, counted: false })])

    const [summary] = seen('summary')
    expect(summary).toMatchObject({ refused: 1 })
    expect(summary?.handOvers.release).toBeGreaterThan(0)
    // A released key is handed over at once. A key of a crashed holder is free after the ttl at most, and a bit.
    expect(summary?.slowestMs.term).toBeLessThan(ttlMs)
    expect(summary?.slowestMs.kill).toBeLessThan(ttlMs + 1000)
    expect(summary?.writes).toBeGreaterThan(20)
  }
})

test(
  'the demo without options needs nothing but a temporary file, and prints text for people',
  TRIES,
  async () => {
    await untilUndisturbed(async (faultEveryMs) => {
      const { code, stdout, stderr } = await shell.run(demo(faultEveryMs))
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      expect(stdout).toMatch(/^ {2}double holders +0 {2}ok$/m)
      expect(stdout).not.toContain('\x1b')
      return () => {
        for (const word of [
          'trying',
          'acquired   fence',
          'working',
          'renewing',
          'released',
          'took over',
          'SIGKILL',
          'refused',
        ]) {
          expect(stdout).toMatch(new RegExp(`^ *\\d+\\.\\d{3}s  worker \\d+ +${word}`, 'm'))
        }
      }
    })
  },
)

test('the demo finds out when every process is alone with its store, and exits with 1', async () => {
  const { code, stdout } = await shell.run([...demo(1200), '--store', 'memory:'])
  expect(code).toBe(1)
  expect(stdout).toMatch(/^ {2}double holders +[1-9]\d* {2}BROKEN$/m)
})

test('Ctrl-C ends the demo early, with a summary and without its processes', async () => {
  const demo = shell.start(['demo'])
  await demo.prints('working')
  expect(shell.processes().length).toBeGreaterThan(3)
  // `ps` shows the command lines of the demo's processes to everybody, and the URL of the store may hold a password.
  expect(execFileSync('ps', ['axww', '-o', 'args='], { encoding: 'utf8' })).not.toContain(folder)
  demo.signal('SIGINT')
  expect(await demo.exit).toBe(130)
  expect(demo.stdout).toContain('double holders')
  expect(shell.processes()).toEqual([])
  expect(folders()).toEqual([])
})

test('a second Ctrl-C ends the demo at once, also while a worker is stopped', async () => {
  const demo = shell.start(['demo', '--kill-every', '600ms'])
  await demo.prints('SIGSTOP')
  demo.signal('SIGINT')
  // One that comes at once would count as the same, which npm passes on.
  await new Promise((resolve) => setTimeout(resolve, 200))
  demo.signal('SIGINT')
  expect(await demo.exit).toBe(130)
  expect(folders()).toEqual([])
})

test('the workers end when the demo itself is killed', async () => {
  const demo = shell.start(['demo'])
  await demo.prints('working')
  demo.signal('SIGKILL')
  await until('all have ended', () => shell.processes().length === 0, { everyMs: 50 })
})

test('a worker that is stopped when the demo is killed goes on later, and ends', async () => {
  const demo = shell.start(['demo', '--kill-every', '600ms'])
  await demo.prints('SIGSTOP')
  demo.signal('SIGKILL')
  await until('all have ended', () => shell.processes().length === 0, { everyMs: 50 })
})

/** The folders that the demo itself has made. */
function folders(): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('holdfast-demo-'))
}
