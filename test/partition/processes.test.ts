import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'
import { root } from '../tidy/project.ts'

const PROGRAM = await bundled(new URL('fleet-process.ts', import.meta.url))
const KEYS = 32
const SLOW_MACHINE = { withinMs: 240_000 }

class Process {
  readonly child: ChildProcess
  readonly errors: string[] = []
  held: readonly number[] = []

  constructor(url: string, journal: string, name: string, ttl: string) {
    const args = [PROGRAM, url, journal, name, ttl, String(KEYS)]
    this.child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    this.child.on('message', ({ held, error }: { held?: number[]; error?: string }) => {
      if (held !== undefined) this.held = held
      if (error !== undefined) this.errors.push(error)
    })
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    this.child.kill(signal)
    await until('it has ended', () => this.child.exitCode ?? this.child.signalCode ?? undefined, SLOW_MACHINE)
  }
}

test.concurrent.each(['redis', 'postgres'])(
  'on %s five processes are replaced, killed and frozen: each key has one holder at a time, and the shares stay even',
  async (store) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-partition-'))
    const journal = join(folder, 'journal')
    const place = await places[store]?.(folder)
    if (place === undefined) throw new Error(`No place for ${store}`)
    const fleet = new Map<string, Process>()
    // Longer than a busy machine keeps a process from its renewals: a lease that runs out would count as a move.
    const add = (name: string, ttl = '30s') => fleet.set(name, new Process(place.url, journal, name, ttl))
    const settled = async () => {
      const processes = () => [...fleet.values()]
      const isEven = () => {
        const sizes = processes().map(({ held }) => held.length)
        const all = new Set(processes().flatMap(({ held }) => held))
        return all.size === KEYS && Math.max(...sizes) - Math.min(...sizes) <= 1 && sum(sizes) === KEYS
      }
      try {
        await until('the shares are even', isEven, SLOW_MACHINE)
      } catch (cause) {
        throw new Error(JSON.stringify(processes().map(({ held, errors }) => ({ held, errors }))), { cause })
      }
    }
    try {
      for (const name of ['a1', 'b1', 'c1', 'd1', 'e1']) add(name)
      await settled()

      // A rolling deploy: the new process comes first, then the old one leaves.
      const before = starts(journal).length
      for (const name of ['a', 'b', 'c', 'd', 'e']) {
        add(`${name}2`)
        await settled()
        await fleet.get(`${name}1`)?.end('SIGTERM')
        fleet.delete(`${name}1`)
        await settled()
      }
      // A process that comes gets 5 of 32 keys, or 6, and one that leaves has 6 or 7 to give away.
      expect(starts(journal).length - before).toBeLessThanOrEqual(5 * (6 + 7))
      expect([...fleet.values()].flatMap(({ errors }) => errors)).toEqual([])

      // The leases of these two are to run out soon.
      add('f', '2s')
      add('g', '2s')
      await settled()

      // Frozen: its leases run out, the others take its keys, and it takes its share again when it wakes up.
      const frozen = fleet.get('f')
      if (frozen === undefined) throw new Error('f is gone')
      fleet.delete('f')
      frozen.child.send('stop yourself')
      await settled()
      frozen.child.kill('SIGCONT')
      fleet.set('f', frozen)
      await settled()

      await fleet.get('g')?.end('SIGKILL')
      fleet.delete('g')
      await settled()

      const rest = [...fleet.values()]
      await Promise.all(rest.map((one) => one.end('SIGTERM')))
      expectOneAtATime(lines(journal))
    } finally {
      await Promise.all(Array.from(fleet.values(), (one) => one.end('SIGKILL')))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}

function lines(journal: string): string[][] {
  const text = readFileSync(journal, 'utf8')
  return text.split('\n').flatMap((line) => (line === '' ? [] : [line.split(' ')]))
}

function starts(journal: string): string[][] {
  return lines(journal).filter(([what]) => what === 'start')
}

/** Who works on a key always has the highest fence so far. So none works on it after another one has begun. */
function expectOneAtATime(journal: readonly string[][]): void {
  const highest = new Map<string, bigint>()
  const overtaken: string[][] = []
  for (const line of journal) {
    const [what, key = '', digits = ''] = line
    if (what === 'stop') continue
    const fence = BigInt(digits)
    const before = highest.get(key) ?? 0n
    if (fence < before || (what === 'start' && fence === before)) overtaken.push(line)
    highest.set(key, fence)
  }
  expect(overtaken).toEqual([])
  expect(highest.size).toBe(KEYS)
  // They have worked, and not only begun.
  expect(journal.filter(([what]) => what === 'work').length).toBeGreaterThan(500)
}
