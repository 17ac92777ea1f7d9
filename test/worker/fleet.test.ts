import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { bundled } from '../servers/bundled.ts'
import { type Place, places, type Way } from '../servers/places.ts'
import { until } from '../servers/until.ts'
import { root } from '../tidy/project.ts'

const PROGRAM = await bundled(new URL('fleet-process.ts', import.meta.url))
/** Longer than a busy machine keeps a process from its renewal. */
const TTL_MS = 6000
/**
 * Allows for three things: a store notices expiries only with a request, processes start slowly, and the machine may be
 * busy.
 */
const SLACK_MS = 5000

test.concurrent.each(Object.entries(places))(
  'a fleet of three on %s: whatever ends the holder, another one takes over in time, and never do two of them work at once',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-fleet-'))
    const journal = join(folder, 'journal')
    const place = await open(folder, { canCut: true })
    const fleet: Server[] = []
    const start = (name: string, { url, exec = [] }: Pick<Place, 'url'> & Partial<Way>, ttlMs = TTL_MS) => {
      const [command = '', ...before] = [...exec, process.execPath, PROGRAM]
      const args = [...before, url, journal, name, `${ttlMs}ms`]
      const server = new Server(
        spawn(command, args, { cwd: root, stdio: ['ignore', 'ignore', 'pipe', 'ipc'] }),
      )
      fleet.push(server)
      return server
    }
    try {
      // The ttl of the processes that have to give the key back. It is longer than any other step waits, so a key that
      // is not given back fails the test. redlock allows no longer one.
      const first = start('first', place, 30_000)
      await first.is('working')
      const leaver = start('leaver', place, 30_000)
      await leaver.is('waiting')
      const second = start('second', place)
      await second.is('waiting')
      const third = start('third', place.through ?? place)
      await third.is('waiting')

      // Ended while it waits: it leaves the queue before it goes, and no other process waits for it to come back.
      leaver.child.kill('SIGTERM')
      expect(await leaver.end()).toBe('SIGTERM')
      // Ctrl-C: the key is given back.
      await tookMs(second, () => first.child.kill('SIGINT'))
      expect(await first.end()).toBe('SIGINT')

      // Frozen: the store waits for the ttl, and the frozen process finds out when it wakes up.
      expect(await tookMs(third, () => second.child.send('stop yourself'))).toBeLessThan(TTL_MS + SLACK_MS)
      expect(second.state).toBe('working')
      second.child.kill('SIGCONT')
      await second.is('waiting')
      expect(second.states.slice(-5)).toEqual(['stopping', 'releasing', 'pausing', 'trying', 'waiting'])

      // Cut off: the process stops by itself before the store gives the key to another one.
      if (place.through !== undefined) {
        const { cut, mend } = place.through
        expect(await tookMs(second, cut)).toBeLessThan(TTL_MS + SLACK_MS)
        await until('the third has stopped', () =>
          lines(journal).some((line) => /^stop \d+ third lost$/.test(line)),
        )
        mend()
        await third.is('waiting')
      }

      // Killed: the store waits for the ttl.
      const [holder, other] = place.through === undefined ? [third, second] : [second, third]
      expect(await tookMs(other, () => holder.child.kill('SIGKILL'))).toBeLessThan(TTL_MS + SLACK_MS)

      await until('they have worked, and not only begun', () => {
        return lines(journal).filter((line) => line.startsWith('work')).length > 100
      })
      other.child.kill('SIGTERM')
      expect(await other.end()).toBe('SIGTERM')
      expect(fleet.map(({ complaints }) => complaints)).toEqual(['', '', '', ''])
      expectOneAtATime(lines(journal))
      await expectNothingHeld(place.url)
    } finally {
      await Promise.all(fleet.map((server) => server.kill()))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

/** How long until the next server works. */
async function tookMs(next: Server, happens: () => void): Promise<number> {
  const beganAt = performance.now()
  happens()
  await next.is('working')
  return performance.now() - beganAt
}

function lines(journal: string): string[] {
  return readFileSync(journal, 'utf8').split('\n').filter(Boolean)
}

/** The server that works always has the highest fence so far. So none works after another one has begun. */
function expectOneAtATime(journal: readonly string[]): void {
  const worked = journal.filter((line) => !line.startsWith('stop')).map((line) => line.split(' '))
  const starts = worked.filter(([what]) => what === 'start')
  expect(starts.length).toBeGreaterThanOrEqual(4)
  const overtaken = worked.filter(
    ([, fence = ''], at) => at > 0 && BigInt(fence) < BigInt(worked[at - 1]?.[1] ?? 0),
  )
  expect(overtaken).toEqual([])
  expect(new Set(starts.map(([, fence]) => fence)).size).toBe(starts.length)
  expect(new Set(starts.map(([, , name]) => name)).size).toBe(3)
}

async function expectNothingHeld(url: string): Promise<void> {
  const locks = await connect(url)
  try {
    for await (const room of locks.inspect()) expect(room.holders).toEqual([])
  } finally {
    await locks.close()
  }
}

class Server {
  readonly child: ChildProcess
  readonly states: string[] = []
  readonly errors: string[] = []
  complaints = ''

  constructor(child: ChildProcess) {
    this.child = child
    child.on('message', ({ state, error }: { state?: string; error?: string }) => {
      if (state !== undefined) this.states.push(state)
      if (error !== undefined) this.errors.push(error)
    })
    child.stderr?.on('data', (text) => {
      this.complaints += text
    })
  }

  get state(): string | undefined {
    return this.states.at(-1)
  }

  async is(state: string): Promise<void> {
    try {
      await until(`it is ${state}`, () => this.state === state, { everyMs: 2 })
    } catch (cause) {
      throw new Error([...this.states, ...this.errors, this.complaints].join('\n'), { cause })
    }
  }

  /** The exit code of the server, or the signal that ended it, within seconds. */
  end(): Promise<number | string> {
    const { child } = this
    return until('it has ended', () => child.exitCode ?? child.signalCode ?? undefined)
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL')
    await this.end()
  }
}
