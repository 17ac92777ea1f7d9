/**
 * Uses every kind of lock at a steady pace for a long time, and shows whether anything grows:
 * `npm run soak -- [--for 1h] [--store NAME] [--every 30s] [--out FOLDER] [--json]`.
 *
 * For each store it starts a server of its own and three processes. The third one is killed and replaced again and again.
 * The record of each store (a row of JSON per sample), a plot of it and RESULTS.md go to the folder. Exits with 1 if a
 * series is not level, or if a call failed that should not have.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { parseDuration } from '../src/base/duration.ts'
import { InvalidArgumentError } from '../src/errors.ts'
import { drawSamples } from './plot.ts'
import { type Outcome, report, summaryOf } from './report.ts'
import { soak } from './soak.ts'
import { STORES } from './stores.ts'

const over = new AbortController()
for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => over.abort())

try {
  process.exitCode = await main()
} catch (error) {
  if (!(error instanceof InvalidArgumentError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 64
}

async function main(): Promise<number> {
  const { stores, durationMs, everyMs, folder, json } = options()
  mkdirSync(folder, { recursive: true })
  const outcomes: Outcome[] = []
  // All at the same time: an hour is an hour, and the pace leaves most of the machine idle.
  const soaked = await Promise.allSettled(
    stores.map(async (name) => {
      const own = mkdtempSync(join(tmpdir(), 'holdfast-soak-'))
      const store = await STORES[name]?.(own)
      if (store === undefined) return
      try {
        const outcome = await soak(name, store, { durationMs, everyMs, over: over.signal, onSample: show })
        outcomes.push(outcome)
        const rows = outcome.samples.map((sample) => `${JSON.stringify(sample)}\n`)
        writeFileSync(join(folder, `${name}.jsonl`), rows.join(''))
        writeFileSync(join(folder, `${name}.svg`), await drawSamples(name, outcome.samples))
      } finally {
        await store.close()
        rmSync(own, { recursive: true, force: true })
      }
    }),
  )
  for (const one of soaked) if (one.status === 'rejected') throw one.reason
  outcomes.sort((one, other) => stores.indexOf(one.store) - stores.indexOf(other.store))
  writeFileSync(join(folder, 'RESULTS.md'), report(outcomes, { durationMs, everyMs }))
  const summaries = outcomes.map(summaryOf)
  if (json) process.stdout.write(`${JSON.stringify(summaries, null, 2)}\n`)
  else process.stdout.write(`${report(outcomes, { durationMs, everyMs })}\n`)
  return summaries.every(({ isLevel, failures }) => isLevel && failures === 0) ? 0 : 1
}

function options() {
  const { values } = parsed()
  const wanted = values.store.length === 0 ? Object.keys(STORES) : values.store
  const unknown = wanted.find((name) => STORES[name] === undefined)
  if (unknown !== undefined)
    throw new InvalidArgumentError(
      `Expected --store to be one of ${Object.keys(STORES).join(', ')}, got ${unknown}.`,
    )
  const range = { leastMs: 1000, mostMs: 7 * 86_400_000, endless: false }
  const durationMs = parseDuration('--for', values.for, range)
  const everyMs = parseDuration('--every', values.every ?? Math.max(1000, durationMs / 120), range)
  if (everyMs > durationMs)
    throw new InvalidArgumentError(
      `Expected --every to be at most --for, got ${everyMs} ms and ${durationMs} ms.`,
    )
  return { stores: wanted, durationMs, everyMs, folder: values.out, json: values.json }
}

function parsed() {
  try {
    return parseArgs({
      options: {
        for: { type: 'string', default: '1h' },
        every: { type: 'string' },
        store: { type: 'string', multiple: true, default: [] },
        out: { type: 'string', default: '.soak' },
        json: { type: 'boolean', default: false },
      },
    })
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
}

function show(store: string, line: string): void {
  process.stderr.write(`${store.padEnd(9)} ${line}\n`)
}
