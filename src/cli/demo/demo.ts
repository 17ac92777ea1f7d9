/**
 * The demo is part of the shipped command, and no example in the repository, because it is the first thing that a newcomer
 * runs: `npx holdfast demo` needs no checkout and no server. With `--store` it also tries the exclusion of a store in use.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { monotonicMs } from '../machine-time.ts'
import { onSignal } from '../on-signal.ts'
import { findRoom } from '../room.ts'
import { storeName } from '../store-name.ts'
import { givenUrl } from '../store-option.ts'
import { complain, paintFor, print } from '../terminal.ts'
import { age, json } from '../text.ts'
import { expected } from '../usage-error.ts'
import { Chronicle, Stalled } from './chronicle.ts'
import { Crew } from './crew.ts'
import { type Direction, direct } from './director.ts'
import { HandOvers } from './hand-overs.ts'
import { entriesOf } from './register.ts'
import { lineOf } from './screen.ts'
import { summaryLines, summaryOf } from './summary.ts'
import { broken, judge } from './verdict.ts'

export async function performDemo(given: ParsedArguments): Promise<number> {
  const plan = planOf(given)
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-demo-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))
  return perform({ ...plan, folder })
}

interface DemoPlan extends Omit<Direction, 'signal'> {
  readonly storeUrl: string | undefined
  readonly asJson: boolean
}

function planOf(given: ParsedArguments): DemoPlan {
  given.refuseWords()
  const durationMs = given.duration('for', { leastMs: 5 * MOST_OFTEN_MS }) ?? 20_000
  const faultEveryMs =
    given.duration('kill-every', { leastMs: MOST_OFTEN_MS }) ?? Math.min(4000, durationMs / 5)
  const ttlMs = given.duration('ttl', { leastMs: 200 }) ?? Math.max(200, Math.min(1500, faultEveryMs / 2))
  // With a longer ttl the next fault would come before anyone could take over after the last one.
  if (ttlMs > faultEveryMs)
    throw expected('--ttl', `at most --kill-every, which is ${age(faultEveryMs)}`, given.text('ttl'))
  return {
    workers: given.count('workers', { least: 2, most: 50 }) ?? 3,
    faultEveryMs,
    durationMs,
    ttlMs,
    storeUrl: givenUrl(given),
    asJson: given.flag('json'),
  }
}

const MOST_OFTEN_MS = 500

async function perform(plan: DemoPlan & { readonly folder: string }): Promise<number> {
  const { folder, ttlMs, asJson } = plan
  const storeUrl = plan.storeUrl ?? `sqlite:${join(folder, 'locks.db')}`
  const registerPath = join(folder, 'register')
  const key = `holdfast-demo-${process.pid}`
  await checkStore(storeUrl, key)
  writeFileSync(registerPath, '')

  const paint = paintFor(process.stdout)
  const chronicle = new Chronicle()
  const startedAt = monotonicMs()
  if (!asJson) print(opening(plan))
  chronicle.listen((event) => {
    const line = asJson
      ? json({ ...event, atMs: event.atMs - startedAt })
      : lineOf(event, { startedAt, paint })
    if (line !== undefined) print(line)
  })
  const handOvers = new HandOvers(chronicle)
  const crew = new Crew(
    { storeUrl, registerPath, key, ttlMs, shortestShiftMs: plan.faultEveryMs / 4 },
    chronicle,
  )
  const stop = stopOnSignal(crew)
  const stalled = await direct({ crew, chronicle, handOvers }, { ...plan, signal: stop.signal })
    .catch(stalledOnly)
    .finally(() => crew.dismiss())
  chronicle.finish()

  const verdict = judge(entriesOf(readFileSync(registerPath, 'latin1').split('\n')))
  if (asJson) print(json(summaryOf(handOvers, verdict)))
  else for (const line of summaryLines(handOvers, verdict, { ttlMs, paint })) print(line)
  if (stalled !== undefined) complain(stalled.message)
  if (verdict.holds === 0 || broken(verdict) || stalled !== undefined) return EXIT.failed
  return stop.signal.aborted ? exitCodeOf(stop.signal.reason as NodeJS.Signals) : EXIT.ok
}

/** Reports a store that cannot be used once, before each worker would. */
async function checkStore(url: string, key: string): Promise<void> {
  await using locks = await connect(url)
  await findRoom(locks, key)
}

function opening({ workers, storeUrl, ttlMs, faultEveryMs, durationMs }: DemoPlan): string {
  const store = storeUrl === undefined ? 'a temporary sqlite file' : storeName(storeUrl)
  return `${workers} processes compete for one key in ${store} for ${age(durationMs)}.
Every ${age(faultEveryMs)} something happens to the one that holds it. The ttl is ${age(ttlMs)}: a crash keeps the key for so long at most.
`
}

function stalledOnly(error: unknown): Stalled {
  if (error instanceof Stalled) return error
  throw error
}

/** The first signal ends the demo early and cleanly, the second one at once. */
function stopOnSignal(crew: Crew): AbortController {
  const stop = new AbortController()
  onSignal(['SIGINT', 'SIGTERM', 'SIGHUP'], (name) => {
    if (stop.signal.aborted) process.exit(exitCodeOf(name))
    stop.abort(name)
  })
  // First of the exit listeners, so that the workers are gone before their folder is removed.
  process.prependOnceListener('exit', () => crew.kill())
  return stop
}
