import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect, isHoldfastError, type Locks } from '../../src/index.ts'
import { bundled } from '../servers/bundled.ts'
import { type Place, places, type Way } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const PROGRAM = await bundled(new URL('candidate-process.ts', import.meta.url))
/** Longer than a busy machine keeps a process from its renewal. So only the test ends terms. */
const TTL_MS = 10_000
/** Allows for two things: a store notices expiries only with a request, and the machine may be busy. Shorter than the ttl. */
const SLACK_MS = 9000
const FIRST_TTL_MS = 30_000

test.concurrent.each(Object.entries(places))(
  'on %s, whatever ends the leader, another one leads in time, never do two lead at once, and an observer sees all terms in order',
  { timeout: 400_000 },
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-election-'))
    const journal = join(folder, 'journal')
    const place = await open(folder, { canCut: true })
    const fleet: Candidate[] = []
    const start = (way: Place | Way, name: string, ttlMs = TTL_MS): Candidate => {
      const candidate = new Candidate(name, way, [journal, name, `${ttlMs}ms`])
      fleet.push(candidate)
      return candidate
    }
    const locks = await connect(place.url)
    try {
      const seen: Seen[] = []
      const observing = observe(locks, seen)
      // The ttl of the first candidate is longer than any step waits. So a key that it does not give back fails the
      // test.
      const first = start(place, 'first', FIRST_TTL_MS)
      await first.does('leads')
      const second = start(place, 'second')
      await untilWaiting(locks, 1, second)
      const third = start(place.through ?? place, 'third')
      await untilWaiting(locks, 2, third)

      // Ctrl-C: the candidate steps down and releases the key.
      expect(await tookMs(second, () => first.child.kill('SIGINT'))).toBeLessThan(SLACK_MS)
      expect(await first.end()).toBe(0)
      expect(first.told).toEqual(['leads', 'step-down'])

      // Frozen: the candidate finds out when it wakes up, and campaigns again.
      expect(await tookMs(third, () => second.child.send('stop yourself'))).toBeLessThan(TTL_MS + SLACK_MS)
      second.child.kill('SIGCONT')
      await second.does('lease-lost')
      await untilWaiting(locks, 1, second)

      // The candidate is asked to step down.
      const asked = locks.election('service')
      const stepDown = async () => {
        const terms = second.fences.length
        try {
          await asked.requestStepDown({ reason: 'test' })
        } catch (error) {
          if (!isHoldfastError(error, 'store-unavailable')) throw error
          // On a busy machine the answer may come too late, and the request may have arrived all the same.
          if (second.fences.length === terms) await asked.requestStepDown({ reason: 'test' })
        }
      }
      expect(await tookMs(second, stepDown)).toBeLessThan(SLACK_MS)
      await third.does('step-down')
      await untilWaiting(locks, 1, third)

      // Killed: the store waits for the ttl.
      expect(await tookMs(third, () => second.child.kill('SIGKILL'))).toBeLessThan(TTL_MS + SLACK_MS)
      const last = start(place, 'last')
      await untilWaiting(locks, 1, last)

      // Cut off: the candidate stops by itself before the store gives the key to another one.
      const order = ['first', 'second', 'third', 'second', 'third']
      if (place.through !== undefined) {
        const { cut, mend } = place.through
        expect(await tookMs(last, cut)).toBeLessThan(TTL_MS + SLACK_MS)
        await third.does('lease-lost')
        mend()
        order.push('last')
      }
      // If the machine is too busy to renew in time, there are more terms than planned. The observer has seen each of
      // them, under its own fence.
      const led = fleet.flatMap(({ fences, name }) => fences.map((fence) => ({ fence, name })))
      led.sort((one, other) => (one.fence < other.fence ? -1 : 1))
      expect(led.filter(({ name }, at) => name !== led[at - 1]?.name).map(({ name }) => name)).toEqual(order)
      await until('all have been seen', () => seen.at(-1)?.fence === led.at(-1)?.fence)
      // On redlock a ticket that still claims its fence may be seen under a lower one.
      const claimsStill = ({ fence, name }: Seen, at: number) =>
        store === 'redlock' && seen[at + 1]?.name === name && !led.some((term) => term.fence === fence)
      expect(seen.filter((term, at) => !claimsStill(term, at))).toEqual(led)

      const entries = () => readFileSync(journal, 'utf8').split('\n').filter(Boolean)
      await until('they have worked, and not only begun', () => {
        return entries().filter((line) => line.startsWith('work')).length > 100
      })
      for (const one of fleet) one.child.kill('SIGTERM')
      expect(await third.end()).toBe(0)
      expect(await last.end()).toBe(0)
      expect(fleet.map(({ complaints }) => complaints)).toEqual(['', '', '', ''])
      expectOneAtATime(entries())
      for await (const room of locks.inspect({ prefix: 'service' })) {
        expect(room.holders.filter(({ limit }) => limit === 1)).toEqual([])
      }
      await locks.close()
      await observing
    } finally {
      await Promise.all(fleet.map((candidate) => candidate.kill()))
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

interface Seen {
  readonly name: string
  readonly fence: bigint
}

async function observe(locks: Locks, seen: Seen[]): Promise<void> {
  try {
    for await (const leader of locks.election('service').observe()) {
      if (leader !== null) seen.push({ fence: leader.fence, name: String(leader.value) })
    }
  } catch (error) {
    expect(error).toMatchObject({ code: 'closed' })
  }
}

/** Waits until this many candidates queue for the leadership, and this one is among them. */
function untilWaiting(locks: Locks, count: number, candidate: Candidate): Promise<void> {
  return candidate.says(`waits, as one of ${count}`, async () => {
    try {
      const { value: room } = await locks.inspect({ prefix: 'service', pageSize: 1 }).next()
      return room?.queue.length === count
    } catch (error) {
      // The store may answer too late if the machine is too busy.
      if (isHoldfastError(error, 'store-unavailable')) return false
      throw error
    }
  })
}

/** How long until the next candidate leads. */
async function tookMs(next: Candidate, happens: () => unknown): Promise<number> {
  const terms = next.fences.length
  const beganAt = performance.now()
  await happens()
  await next.says('leads once more', () => next.fences.length > terms)
  return performance.now() - beganAt
}

/** A leader always has the highest fence so far. So none works after another one has begun. */
function expectOneAtATime(journal: readonly string[]): void {
  const entries = journal.map((line) => line.split(' '))
  const overtaken = entries.filter(
    ([, fence = ''], at) => at > 0 && BigInt(fence) < BigInt(entries[at - 1]?.[1] ?? 0),
  )
  expect(overtaken).toEqual([])
  const starts = entries.filter(([what]) => what === 'start')
  expect(starts.length).toBeGreaterThanOrEqual(5)
  expect(new Set(starts.map(([, fence]) => fence)).size).toBe(starts.length)
}

class Candidate {
  readonly name: string
  readonly told: string[] = []
  /** The fences of its terms, in their order. */
  readonly fences: bigint[] = []
  readonly child: ChildProcess
  complaints = ''

  constructor(name: string, way: Place | Way, args: readonly string[]) {
    this.name = name
    const exec = 'exec' in way ? way.exec : []
    const [command = '', ...before] = [...exec, process.execPath, PROGRAM]
    this.child = spawn(command, [...before, way.url, ...args], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] })
    this.child.on('message', ({ what, fence }: { what: string; fence: string }) => {
      if (what === 'leads') this.fences.push(BigInt(fence))
      this.told.push(what)
    })
    this.child.stderr?.on('data', (text) => {
      this.complaints += text
    })
  }

  does(what: string): Promise<void> {
    return this.says(what, () => this.told.at(-1) === what)
  }

  async says(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    try {
      await until(`${this.name}: ${what}`, isSo, { everyMs: 2 })
    } catch (cause) {
      const told = this.told.join(', ')
      throw new Error(`${this.name}: ${what}. It told: ${told}. ${this.complaints}`, { cause })
    }
  }

  /** The exit code of the process, or the signal that ended it, within seconds. */
  end(): Promise<number | string> {
    const { child } = this
    return until('it has ended', () => child.exitCode ?? child.signalCode ?? undefined)
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL')
    await this.end()
  }
}
