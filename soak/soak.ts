import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { hasEnded } from '../test/servers/server-process.ts'
import type { Outcome } from './report.ts'
import type { ProcessSample, Sample } from './sample.ts'
import type { SoakedStore } from './stores.ts'

interface SoakPlan {
  readonly durationMs: number
  readonly everyMs: number
  /** Ends the soak early. What was recorded until then counts. */
  readonly over: AbortSignal
  onSample(store: string, line: string): void
}

/** Resolves when the time is over and all processes have ended. */
export async function soak(name: string, store: SoakedStore, plan: SoakPlan): Promise<Outcome> {
  const { durationMs, everyMs, over } = plan
  const residents = [start(store.url), start(store.url)]
  let visitor = start(store.url)
  const samples: Sample[] = []
  let killed = 0
  let latest: readonly ProcessSample[] = []
  try {
    // A process answers once it is connected.
    await Promise.all(residents.map(askForSample))
    const startedAt = performance.now()
    for (let next = everyMs; next <= durationMs && !over.aborted; next += everyMs) {
      await pause(startedAt + next - performance.now(), undefined, { signal: over }).catch(() => {})
      if (over.aborted) break
      latest = await Promise.all(residents.map(askForSample))
      const sample = await sampleOf(latest, store, performance.now() - startedAt)
      samples.push(sample)
      plan.onSample(name, lineOf(sample, { durationMs }))
      if (samples.length % KILL_EVERY === 0) {
        if (!over.aborted && hasEnded(visitor))
          throw new Error(`A process of the soak ended by itself: ${endOf(visitor)}.`)
        await kill(visitor)
        killed += 1
        visitor = start(store.url)
      }
    }
    await Promise.all(residents.map(end))
  } finally {
    await Promise.all([...residents, visitor].map(kill))
  }
  const errors: Record<string, number> = {}
  for (const { errors: own } of latest)
    for (const [code, count] of Object.entries(own)) errors[code] = (errors[code] ?? 0) + count
  const lost = latest.reduce((sum, one) => sum + one.lost, 0)
  return { store: name, hasServer: store.hasServer, samples, killed, errors, lost }
}

/** So often that its unfinished business is a steady part of the load. */
const KILL_EVERY = 3

function start(url: string): ChildProcess {
  const program = fileURLToPath(new URL('load.ts', import.meta.url))
  return fork(program, [url], {
    execArgv: [...process.execArgv, '--expose-gc'],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
}

async function askForSample(child: ChildProcess): Promise<ProcessSample> {
  const answered = once(child, 'message', { signal: AbortSignal.timeout(LONGEST_ANSWER_MS) })
  child.send('sample')
  const [sample] = (await answered) as [ProcessSample]
  return sample
}

const LONGEST_ANSWER_MS = 60_000

/** The process finishes what it does and closes its locks. */
async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit', { signal: AbortSignal.timeout(LONGEST_ANSWER_MS) })
  child.disconnect()
  await ended
  if (child.exitCode !== 0) throw new Error(`A process of the soak did not end well: ${endOf(child)}.`)
}

function endOf({ exitCode, signalCode }: ChildProcess): string {
  return signalCode ?? `exit code ${exitCode}`
}

async function kill(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

async function sampleOf(
  processes: readonly ProcessSample[],
  store: SoakedStore,
  atMs: number,
): Promise<Sample> {
  const sum = (of: (one: ProcessSample) => number): number =>
    processes.reduce((total, one) => total + of(one), 0)
  const most = (of: (one: ProcessSample) => number): number => Math.max(...processes.map(of))
  return {
    atMs: Math.round(atMs),
    ...(await store.look()),
    rssBytes: sum(({ rssBytes }) => rssBytes),
    heapBytes: sum(({ heapBytes, externalBytes }) => heapBytes + externalBytes),
    handles: sum(({ handles }) => handles),
    cycles: sum(({ cycles }) => cycles),
    freeKeyP50Ms: most(({ freeKey }) => freeKey.p50Ms),
    freeKeyP99Ms: most(({ freeKey }) => freeKey.p99Ms),
    busyKeyP50Ms: most(({ busyKey }) => busyKey.p50Ms),
    busyKeyP99Ms: most(({ busyKey }) => busyKey.p99Ms),
  }
}

function lineOf(sample: Sample, { durationMs }: { readonly durationMs: number }): string {
  const megabytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`
  return [
    `${Math.round(sample.atMs / 1000)} of ${Math.round(durationMs / 1000)} s`,
    `${sample.cycles} cycles`,
    `heap ${megabytes(sample.heapBytes)}`,
    `handles ${sample.handles}`,
    `server ${megabytes(sample.memoryBytes)}`,
    `stored ${megabytes(sample.storedBytes)}`,
    `free key p99 ${sample.freeKeyP99Ms.toFixed(1)} ms`,
  ].join(', ')
}
