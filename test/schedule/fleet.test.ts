import { type ChildProcess, fork } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'
import { root } from '../tidy/project.ts'

const PROGRAM = await bundled(new URL('fleet-process.ts', import.meta.url))
/** `HOLDFAST_SCHEDULE_SECONDS=120 npx vitest run test/schedule/fleet.test.ts` runs the long form, on all stores. */
const { HOLDFAST_SCHEDULE_SECONDS: ASKED_FOR } = process.env
const SECONDS = Number(ASKED_FOR ?? 40)
/**
 * Without the variable the test leaves the cluster out: other tests cover what is special about it, and so many
 * processes take long to start.
 */
const stores = Object.entries(places).filter(([name]) => ASKED_FOR !== undefined || name !== 'cluster')
/** Longer than the ttl of `fleet-process.ts`. So not every process that takes over one tick is killed. */
const BETWEEN_KILLS_MS = 7000
/** How far the clocks of the four processes are ahead. */
const CLOCKS_AHEAD_MS = [0, 1300, -2400, 700]

test.concurrent.each(stores)(
  'four processes on %s whose clocks differ, one of them killed or frozen every few seconds: each tick of a second runs once',
  { timeout: (SECONDS + 240) * 1000 },
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedule-'))
    const journal = join(folder, 'journal')
    const place = await open(folder)
    const fleet = new Fleet(place.url, journal)
    try {
      for (const aheadMs of CLOCKS_AHEAD_MS) fleet.start(aheadMs)
      await until('the first tick', () => ends(journal).length > 0)
      // Up to this instant the clock of a process may have said that a tick was over when the job became known.
      const knownAt = Date.now() + Math.max(...CLOCKS_AHEAD_MS)
      const endsAt = performance.now() + SECONDS * 1000
      // Each of the three once at least, however long it takes.
      for (let kills = 0; kills < 3 || performance.now() < endsAt; kills += 1) {
        await sleep(BETWEEN_KILLS_MS)
        // Kills a process in the middle of a run, kills one at any moment, or freezes one.
        if (kills % 3 === 0) await fleet.killNextRunner()
        else if (kills % 3 === 1) await fleet.killOne(kills)
        else await fleet.freezeOne()
      }
      // The run that the last killed process had begun is taken over, too.
      const killedAt = Date.now()
      await until('the job has gone on', () =>
        ends(journal).some(({ tick }) => Date.parse(tick) > killedAt + 15_000),
      )
      await fleet.stop()

      const ran = new Set(ends(journal).map(({ tick }) => tick))
      const ticks = [...ran].sort().filter((tick) => Date.parse(tick) > knownAt)
      expect(ticks).toEqual(
        everySecond(ticks[0], ticks.at(-1)).filter((tick) => !isGivenUp(journal, tick, fleet.killed)),
      )
      expect(ticks.length).toBeGreaterThanOrEqual(SECONDS - 2)
      expect(twice(journal, fleet.killed)).toEqual([])
      expect(fleet.killed.size).toBeGreaterThanOrEqual(2)
      expect(frozen(journal).length).toBeGreaterThanOrEqual(1)
      // Two runs never overlap: a process that begins or ends a run always has the highest fence so far.
      const fences = lines(journal).map(({ fence }) => fence)
      expect(fences).toEqual([...fences].sort((one, other) => (one < other ? -1 : one > other ? 1 : 0)))
      expect(new Set(lines(journal).map(({ pid }) => pid)).size).toBeGreaterThan(1)
      expect(fleet.complaints).toBe('')
    } finally {
      await fleet.kill()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

interface Line {
  readonly what: string
  readonly tick: string
  readonly fence: bigint
  readonly pid: number
}

function lines(journal: string): Line[] {
  if (!existsSync(journal)) return []
  const texts = readFileSync(journal, 'utf8').split('\n').filter(Boolean)
  return texts.map((text) => {
    const [what = '', tick = '', fence = '', pid = ''] = text.split(' ')
    return { what, tick, fence: BigInt(fence), pid: Number(pid) }
  })
}

function ends(journal: string): Line[] {
  return lines(journal).filter(({ what }) => what === 'end')
}

function frozen(journal: string): Line[] {
  return lines(journal).filter(({ what }) => what === 'freeze')
}

function everySecond(from = '', to = ''): string[] {
  const count = (Date.parse(to) - Date.parse(from)) / 1000 + 1
  return Array.from({ length: count }, (_, at) => new Date(Date.parse(from) + at * 1000).toISOString())
}

/**
 * The ticks that ended twice. An end is not counted if it is the last line of a killed process: the process may have
 * died before it told the store.
 */
function twice(journal: string, killed: ReadonlySet<number>): string[] {
  const all = lines(journal)
  const untold = (line: Line) => killed.has(line.pid) && all.findLast(({ pid }) => pid === line.pid) === line
  const told = all.filter((line) => line.what === 'end' && !untold(line)).map(({ tick }) => tick)
  return told.filter((tick, at) => told.indexOf(tick) !== at)
}

/** Whether the tick was given up because three processes were killed or frozen in the middle of it. */
function isGivenUp(journal: string, tick: string, killed: ReadonlySet<number>): boolean {
  const all = lines(journal)
  const begins = all.filter((line) => line.what === 'begin' && line.tick === tick)
  const brokeOff = begins.filter(
    ({ pid }) =>
      all.some((line) => line.what === 'freeze' && line.tick === tick && line.pid === pid) ||
      (killed.has(pid) && all.findLast((line) => line.pid === pid)?.tick === tick),
  )
  return brokeOff.length === 3
}

class Fleet {
  readonly killed = new Set<number>()
  complaints = ''
  readonly #url: string
  readonly #journal: string
  readonly #running = new Map<ChildProcess, number>()
  #onBegin: (child: ChildProcess) => void = () => {}

  constructor(url: string, journal: string) {
    this.#url = url
    this.#journal = journal
  }

  start(aheadMs: number): void {
    const child = fork(PROGRAM, [this.#url, this.#journal, String(aheadMs)], {
      cwd: root,
      execArgv: [],
      silent: true,
    })
    this.#running.set(child, aheadMs)
    child.on('message', () => this.#onBegin(child))
    child.stderr?.on('data', (text) => {
      this.complaints += text
    })
  }

  async killNextRunner(): Promise<void> {
    const runner = await new Promise<ChildProcess>((resolve) => {
      this.#onBegin = resolve
    })
    this.#onBegin = () => {}
    await this.#replace(runner)
  }

  async killOne(number: number): Promise<void> {
    const all = [...this.#running.keys()]
    await this.#replace(all[number % all.length] as ChildProcess)
  }

  /** Freezes one process over several ticks, for longer than its lease, until another process goes on. */
  async freezeOne(): Promise<void> {
    const all = [...this.#running.keys()]
    const before = frozen(this.#journal).length
    for (const child of all) child.send('freeze')
    const { tick, pid } = await until('one is frozen in a run', () => frozen(this.#journal)[before])
    // The lease of the frozen process has to run out before the next run begins.
    for (const child of all) child.send('go on')
    await until('another one has run that tick, or it was the third that broke off', () =>
      ends(this.#journal).some(
        (end) => end.tick === tick || (end.tick > tick && isGivenUp(this.#journal, tick, this.killed)),
      ),
    )
    process.kill(pid, 'SIGCONT')
  }

  /** Starts a new process in the place of one that has ended, as a process manager does. */
  async #replace(child: ChildProcess): Promise<void> {
    const aheadMs = this.#running.get(child) ?? 0
    this.#running.delete(child)
    this.killed.add(child.pid ?? 0)
    child.kill('SIGKILL')
    await ended(child)
    this.start(aheadMs)
  }

  /** Lets all processes end by themselves. */
  async stop(): Promise<void> {
    for (const child of this.#running.keys()) child.kill('SIGTERM')
    for (const child of this.#running.keys()) await ended(child)
  }

  async kill(): Promise<void> {
    for (const child of this.#running.keys()) child.kill('SIGKILL')
    for (const child of this.#running.keys()) await ended(child)
  }
}

function ended(child: ChildProcess): Promise<unknown> {
  return until('it has ended', () => child.exitCode !== null || child.signalCode !== null)
}
