import { randomUUID } from 'node:crypto'
import type { Lease, Locks } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { interruption } from '../interruption.ts'
import { openLocks } from '../open-locks.ts'
import { packageVersion } from '../package.ts'
import { storeName } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { type Column, table } from '../table.ts'
import { paintFor, print, roomOnScreen } from '../terminal.ts'
import { json } from '../text.ts'
import { type Measured, type Measurement, measure } from './measure.ts'

export async function measureStore(given: ParsedArguments): Promise<number> {
  given.refuseWords()
  const plan = {
    durationMs: given.duration('for', { leastMs: 100 }) ?? 2000,
    waiters: given.count('waiters', { least: 1, most: 10_000 }) ?? 100,
    flight: given.count('flight', { least: 1, most: 10_000 }) ?? 64,
    leases: given.count('leases', { least: 1, most: 10_000 }) ?? 100,
  }
  const { url } = await placeOf(given)
  const signal = interruption()
  await using here = await openLocks(url)
  await using there = await openLocks(url)
  const rows: BenchRow[] = []
  const progress = new ProgressLine()
  let isComplete = false
  try {
    progress.show('waiting for the first lock')
    // The votes of new Redlock servers do not count at once, and a warning says how long that takes.
    await (
      await here.acquire(`holdfast-bench-first:${randomUUID()}`, { wait: ENDLESS, ttl: TTL_MS, signal })
    ).release()
    const works = worksOf(plan, [here, there], signal)
    for (const [at, { id, title, atOnce, begin }] of works.entries()) {
      progress.show(`${at + 1} of ${works.length}: ${title}`)
      await using begun = await begin()
      const measured = await measure({ work: begun.work, atOnce, durationMs: plan.durationMs, signal })
      rows.push({ work: id, title, ...measured })
    }
    isComplete = true
  } finally {
    progress.end()
    // What was measured before an interruption or a failure is of use, too.
    if (given.flag('json')) print(json({ isComplete, ...summaryOf(url, plan.durationMs, rows) }))
    else if (rows.length > 0) printPage(url, rows)
  }
  return EXIT.ok
}

interface BenchPlan {
  readonly durationMs: number
  readonly waiters: number
  readonly flight: number
  readonly leases: number
}

/** One row of the table. */
interface BenchWork {
  readonly id: string
  readonly title: string
  readonly atOnce: number
  /** Takes what the work needs; its end gives that back. */
  readonly begin: () => Promise<BegunWork>
}

interface BegunWork extends AsyncDisposable {
  readonly work: Measurement['work']
}

interface BenchRow extends Measured {
  readonly work: string
  readonly title: string
}

const ENDLESS = Number.POSITIVE_INFINITY
const STORE_TIMEOUT_MS = 5000
/** If this process is killed, its keys are free after this time. */
const TTL_MS = 10_000

function worksOf(
  { waiters, flight, leases }: BenchPlan,
  clients: readonly [Locks, Locks],
  signal: AbortSignal,
): readonly BenchWork[] {
  const [here] = clients
  const key = `holdfast-bench:${randomUUID()}`
  // A store that goes away would be waited for without an end.
  const patient = {
    ...{ wait: ENDLESS, maxWaiting: ENDLESS, storeTimeout: STORE_TIMEOUT_MS },
    ttl: TTL_MS,
    signal,
  }
  const cycle = (name: string) => timed(async () => (await here.acquire(name, patient)).release())
  return [
    {
      ...{ id: 'question', title: 'a question about a free key', atOnce: 1 },
      begin: async () => alone(() => timed(() => here.peek(key))),
    },
    {
      ...{ id: 'free-key', title: 'take and release a free key', atOnce: 1 },
      begin: async () => alone(() => cycle(key)),
    },
    {
      ...{ id: 'free-keys', title: `the same, ${counted(flight, 'key')} at a time`, atOnce: flight },
      begin: async () => alone((index) => cycle(`${key}:${index}`)),
    },
    {
      ...{ id: 'hand-over', title: 'hand-over to a client that waits', atOnce: 1 },
      begin: () => beginHandOvers(key, clients, patient),
    },
    {
      ...{ id: 'waiters', title: `a turn among ${counted(waiters, 'waiter')}`, atOnce: waiters },
      begin: async () =>
        alone((index) =>
          timed(async () => (await (clients[index % 2] ?? here).acquire(key, patient)).release()),
        ),
    },
    {
      ...{ id: 'renewal', title: `renew a lease, ${leases} at a time`, atOnce: leases },
      begin: async () => {
        const held: Lease[] = []
        const release = async () => {
          await Promise.all(held.map((lease) => lease.release()))
        }
        const names = Array.from({ length: leases }, (_, index) => `${key}:${index}`)
        await Promise.all(names.map(async (name) => held.push(await here.acquire(name, patient))))
        return { work: (index) => timed(async () => held[index]?.extend()), [Symbol.asyncDispose]: release }
      },
    },
  ]
}

/** Work that leaves nothing behind. */
function alone(work: Measurement['work']): BegunWork {
  return { work, [Symbol.asyncDispose]: async () => {} }
}

/** The clients take turns. A hand-over takes from the call of `release` until the other client has its lease. */
async function beginHandOvers(
  key: string,
  [here, there]: readonly [Locks, Locks],
  patient: TakingPatiently,
): Promise<BegunWork> {
  let [holding, waiting] = [here, there]
  let held = await holding.acquire(key, patient)
  const work = async (): Promise<number> => {
    let isOver = false
    const next = waiting.acquire(key, patient).finally(() => {
      isOver = true
    })
    // Its failure is told where it is awaited.
    next.catch(() => {})
    while (!isOver && (await holding.peek(key))?.queue.length === 0);
    const beganAt = performance.now()
    const released = held.release()
    held = await next
    const tookMs = performance.now() - beganAt
    await released
    ;[holding, waiting] = [waiting, holding]
    return tookMs
  }
  return { work, [Symbol.asyncDispose]: async () => void (await held.release()) }
}

type TakingPatiently = NonNullable<Parameters<Locks['acquire']>[1]>

async function timed(work: () => Promise<unknown>): Promise<number> {
  const beganAt = performance.now()
  await work()
  return performance.now() - beganAt
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}

const COLUMNS: readonly Column[] = [
  { title: 'WORK', narrow: 'cut' },
  { title: 'A SECOND', align: 'right' },
  { title: 'P50', align: 'right' },
  { title: 'P99', align: 'right' },
  { title: 'LONGEST', align: 'right', narrow: 'drop' },
]

function printPage(url: string, rows: readonly BenchRow[]): void {
  const cells = rows.map(({ title, perSecond, p50Ms, p99Ms, longestMs }) => [
    title,
    Math.round(perSecond).toLocaleString('en'),
    ...[p50Ms, p99Ms, longestMs].map(milliseconds),
  ])
  const [titles = '', ...lines] = table(COLUMNS, cells, roomOnScreen())
  print(`Locks on ${storeName(url)}, from one process of Node.js ${process.version}`)
  print('')
  print(paintFor(process.stdout)('bold', titles))
  for (const line of lines) print(line)
}

/** Two digits, and three from 100 ms on: 0.051 ms, 3.4 ms, 120 ms. */
function milliseconds(durationMs: number): string {
  return `${Number(durationMs.toPrecision(durationMs < 100 ? 2 : 3))} ms`
}

function summaryOf(url: string, durationMs: number, rows: readonly BenchRow[]): object {
  return { holdfast: packageVersion(), node: process.version, store: storeName(url), durationMs, rows }
}

/** In a terminal, a line says which row is being measured. */
class ProgressLine {
  readonly #hasScreen = process.stderr.isTTY === true

  show(text: string): void {
    // Standard output may be a file, and tells nothing of the width.
    const width = (process.stderr.columns || 80) - 1
    if (this.#hasScreen) process.stderr.write(`${CLEAR}${text.slice(0, width)}`)
  }

  end(): void {
    if (this.#hasScreen) process.stderr.write(CLEAR)
  }
}

const CLEAR = '\r\x1b[K'
