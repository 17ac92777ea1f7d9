import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { monotonicMs } from '../machine-time.ts'
import { onSignal } from '../on-signal.ts'
import { onOutputFailure } from '../output-failure.ts'
import { complain, paintFor, print } from '../terminal.ts'
import { json } from '../text.ts'
import { keysOf, takenKeys } from './assignment.ts'
import type { CheckInput } from './checker/check.ts'
import { readHistory } from './checker/history.ts'
import { judgeRun, refusedKeys } from './checker/judge.ts'
import { clear } from './leftovers.ts'
import { HookFailed, runNemesis } from './nemesis.ts'
import { makeHistoryFolder, planOf, type TorturePlan } from './plan.ts'
import { Progress } from './progress.ts'
import type { NemesisRecord } from './record.ts'
import { Recorder, watchGaps } from './recorder.ts'
import { faultsNotSeen, opening, type Report, reportLines } from './report.ts'
import { timelinePage } from './timeline.ts'
import { Workforce } from './workforce.ts'

export async function runTorture(given: ParsedArguments): Promise<number> {
  const plan = planOf(given)
  if (plan.storeUrl !== undefined) return perform(plan, plan.storeUrl)
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-torture-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))
  return perform(plan, `sqlite:${join(folder, 'locks.db')}`)
}

async function perform(plan: TorturePlan, storeUrl: string): Promise<number> {
  const { ttlMs, settleMs, durationMs, processes, seed, proxied, asJson, out } = plan
  const prefix = `holdfast-torture:${seed}:`
  const scheme = storeUrl.slice(0, storeUrl.indexOf(':')).toLowerCase()
  // Independent servers cannot count permits.
  const semaphores = scheme !== 'redlock'
  await tryOut(storeUrl, keysOf(prefix).permits, { semaphores })
  const folder = makeHistoryFolder(plan)

  const startedAt = monotonicMs()
  const now = () => monotonicMs() - startedAt
  const paint = paintFor(process.stdout)
  const history = new Recorder<NemesisRecord>(join(folder, 'nemesis.jsonl'))
  const progress = new Progress({ asJson, durationMs, now, paint })
  const ended = new AbortController()
  const writeErrors: unknown[] = []
  // Also called by listeners and timers, where an error would end the process.
  const tell = (record: NemesisRecord) => {
    try {
      history.add(record)
      progress.tell(record)
    } catch (error) {
      writeErrors.push(error)
      ended.abort()
    }
  }
  const failures: string[] = []
  const interrupted: string[] = []
  const paceMs = Math.max(20, (durationMs * processes * LOOPS) / MOST_TASKS)
  const workforce = new Workforce({
    duty: { storeUrl, folder, prefix, ttlMs, settleMs, durationMs, paceMs, startedAt, seed, semaphores },
    proxied,
    now,
    tell,
    onFailure: (text, signal) => {
      if (signal != null && ENDS_THE_COMMAND.has(signal)) interrupted.push(text)
      else failures.push(text)
      ended.abort()
    },
  })
  const endedEarly = onEarlyEnd(workforce, ended)
  if (!asJson) for (const line of opening(plan, { scheme, semaphores })) print(line)
  const stopGaps = watchGaps(now, (from, at) => tell({ tag: 'gap', from, at }))

  const stopsGently = scheme === 'sqlite'
  let ranMs: number
  let stuckProcesses: number
  try {
    await workforce.start(processes)
    await runNemesis(workforce, { ...plan, stopsGently, signal: ended.signal, now, tell }).catch((error) => {
      if (!(error instanceof HookFailed)) throw error
      failures.push(error.message)
    })
    ranMs = now()
    progress.settling()
    stuckProcesses = await workforce.lastRound(settleMs + LAST_ROUND_GRACE_MS)
  } finally {
    // Without this, the processes would go on after an unexpected error.
    workforce.close()
    if (writeErrors.length > 0) stopGaps()
  }
  if (writeErrors.length > 0) throw writeErrors[0]
  const leftovers = await clear(storeUrl, prefix, settleMs)
  stopGaps()
  if (writeErrors.length > 0) throw writeErrors[0]
  history.close()
  progress.end()

  const input: CheckInput = {
    history: readHistory(filesIn(folder, prefix)),
    terms: { ttlMs, settleMs, forgets: plan.forgets, keepsOrder: scheme !== 'redlock' },
  }
  const judgement = judgeRun(input, { stuckProcesses, leftovers })
  // A signal for the whole process group ends a process that has only just started.
  if (endedEarly() === undefined) failures.push(...interrupted)
  const refused = refusedKeys(input, takenKeys(prefix, { semaphores }))
  if (refused.length > 0) failures.push(`no process got these keys during the faults: ${refused.join(', ')}`)
  const report: Report = { plan, scheme, ranMs, failures, judgement, prefix }
  const timeline = join(out, 'timeline.html')
  writeFileSync(timeline, timelinePage(report, input.history))
  const verdict = verdictOf(report, timeline)
  writeFileSync(join(out, 'verdict.json'), `${json(verdict)}\n`)
  if (asJson) print(json(verdict))
  else for (const line of reportLines(report, { timeline, paint })) print(line)
  for (const failure of failures) complain(failure)
  if (!judgement.holds || failures.length > 0) return EXIT.failed
  return endedEarly() ?? EXIT.ok
}

/** How many loops a process has. */
const LOOPS = 6
/** About so many tasks in a run, however long it is. So the files are bounded, and the checker's memory is. */
const MOST_TASKS = 40_000
const LAST_ROUND_GRACE_MS = 10_000

/** Reports a store that cannot be used once, before each worker would. */
async function tryOut(
  url: string,
  permits: string,
  { semaphores }: { readonly semaphores: boolean },
): Promise<void> {
  await using locks = await connect(url)
  await locks.check()
  if (!semaphores) return
  const lease = await locks.semaphore(permits, 3).tryAcquire()
  await lease?.release()
}

const ENDS_THE_COMMAND: ReadonlySet<NodeJS.Signals> = new Set(['SIGINT', 'SIGTERM', 'SIGHUP'])

/**
 * The first signal ends the faults, and the verdict follows. So does an output that is closed: the program of `--on-fault`
 * still has to mend the server. A second signal ends everything at once. Returns the exit code of the first reason.
 */
function onEarlyEnd(workforce: Workforce, ended: AbortController): () => number | undefined {
  let exitCode: number | undefined
  let signalled = false
  const end = (code: number) => {
    exitCode ??= code
    ended.abort()
  }
  onSignal(ENDS_THE_COMMAND, (name) => {
    if (signalled) process.exit(exitCodeOf(name))
    signalled = true
    end(exitCodeOf(name))
  })
  onOutputFailure(() => end(EXIT.noOutput))
  process.once('exit', () => workforce.killAll())
  return () => exitCode
}

function filesIn(folder: string, prefix: string): Parameters<typeof readHistory>[0] {
  const names = readdirSync(folder)
  const text = (name: string) => readFileSync(join(folder, name), 'utf8')
  const registers = names.filter((name) => name.startsWith('register-'))
  return {
    workers: names.filter((name) => name.startsWith('worker-')).map(text),
    nemesis: text('nemesis.jsonl'),
    registers: new Map(
      registers.map((name) => [`${prefix}${name.slice('register-'.length, -'.jsonl'.length)}`, text(name)]),
    ),
  }
}

function verdictOf({ plan, scheme, ranMs, failures, judgement }: Report, timeline: string): object {
  const { seed, processes, ttlMs, settleMs, kinds } = plan
  return {
    tag: 'verdict',
    ...{
      holds: judgement.holds && failures.length === 0,
      seed: Number(seed),
      store: scheme,
      processes,
      ttlMs,
      settleMs,
    },
    ...{ nemesis: kinds, faultsNotSeen: faultsNotSeen(plan, judgement) },
    ...{ ranMs, failures, checks: judgement.checks, numbers: judgement.numbers, timeline },
  }
}
