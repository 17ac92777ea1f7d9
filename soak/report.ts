import { cpus, loadavg, release, type as systemType, totalmem } from 'node:os'
import { judge, type Tolerance, type Verdict } from './level.ts'
import type { Sample } from './sample.ts'

/** What the soak of one store has given. */
export interface Outcome {
  readonly store: string
  /** Without a server there are no series of its memory and its connections. */
  readonly hasServer: boolean
  readonly samples: readonly Sample[]
  /** Processes that were killed and replaced. */
  readonly killed: number
  /** Errors that no call should have had, by code. */
  readonly errors: Readonly<Record<string, number>>
  /** Leases that were lost by processes that nobody killed. */
  readonly lost: number
}

interface Series {
  readonly label: string
  readonly unit: 'MiB' | 'ms' | ''
  readonly of: (sample: Sample) => number
  readonly needsServer?: boolean
  readonly tolerance: Tolerance
}

const MIB = 2 ** 20

/** What has to be level. The tolerances are what a garbage collector, an allocator or a busy machine adds by itself. */
export const SERIES: readonly Series[] = [
  {
    label: 'heap of two processes',
    unit: 'MiB',
    of: ({ heapBytes }) => heapBytes / MIB,
    tolerance: { share: 0.03, amount: 0.5 },
  },
  {
    label: 'memory of two processes',
    unit: 'MiB',
    of: ({ rssBytes }) => rssBytes / MIB,
    tolerance: { share: 0.05, amount: 4 },
  },
  {
    label: 'timers and sockets of two processes',
    unit: '',
    of: ({ handles }) => handles,
    tolerance: { share: 0.05, amount: 5 },
  },
  {
    label: 'memory of the server',
    unit: 'MiB',
    of: ({ memoryBytes }) => memoryBytes / MIB,
    needsServer: true,
    tolerance: { share: 0.05, amount: 2 },
  },
  {
    label: 'connections of the server',
    unit: '',
    of: ({ connections }) => connections,
    needsServer: true,
    tolerance: { share: 0, amount: 1 },
  },
  {
    label: 'stored by the server',
    unit: 'MiB',
    of: ({ storedBytes }) => storedBytes / MIB,
    tolerance: { share: 0.1, amount: 0.5 },
  },
  {
    label: 'a free key, median',
    unit: 'ms',
    of: ({ freeKeyP50Ms }) => freeKeyP50Ms,
    tolerance: { share: 0.25, amount: 0.5 },
  },
  {
    label: 'a free key, 99th percentile',
    unit: 'ms',
    of: ({ freeKeyP99Ms }) => freeKeyP99Ms,
    tolerance: { share: 0.5, amount: 5 },
  },
  {
    label: 'a busy key, median',
    unit: 'ms',
    of: ({ busyKeyP50Ms }) => busyKeyP50Ms,
    tolerance: { share: 0.25, amount: 2 },
  },
]

export interface Summary {
  readonly store: string
  readonly cycles: number
  readonly killed: number
  readonly lost: number
  readonly failures: number
  readonly errors: Readonly<Record<string, number>>
  readonly series: readonly (Verdict & { readonly label: string; readonly unit: string })[]
  readonly isLevel: boolean
}

export function summaryOf({ store, hasServer, samples, killed, errors, lost }: Outcome): Summary {
  const present = SERIES.filter(({ needsServer }) => hasServer || needsServer !== true)
  const series = present.map(({ label, unit, of, tolerance }) => ({
    label,
    unit,
    ...judge(
      samples.map((sample) => [sample.atMs, of(sample)] as const),
      tolerance,
    ),
  }))
  const failures = Object.values(errors).reduce((sum, count) => sum + count, lost)
  const isLevel = series.every((one) => one.isLevel)
  return { store, cycles: samples.at(-1)?.cycles ?? 0, killed, lost, failures, errors, series, isLevel }
}

/** RESULTS.md. */
export function report(
  outcomes: readonly Outcome[],
  { durationMs, everyMs }: { readonly durationMs: number; readonly everyMs: number },
): string {
  const hardware = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown processor'}, ${Math.round(totalmem() / 2 ** 30)} GiB`
  const command = `npm run soak -- --for ${durationMs / 1000}s --every ${everyMs / 1000}s`
  const head = [
    '# Soak',
    '',
    'Written by `npm run soak`, never by hand. [The page about it](../../docs/soak.md) says what the processes do and how a series is judged.',
    '',
    `- ${new Date().toISOString().slice(0, 10)}, \`${command}\`, all stores at the same time`,
    `- ${hardware}, ${systemType()} ${release()}, Node.js ${process.version}`,
    `- at the end, ${(loadavg()[2] ?? 0).toFixed(1)} processes on average wanted to run: more than ${cpus().length} mean that the machine was busy`,
    '',
  ]
  return [...head, ...outcomes.flatMap((outcome) => section(summaryOf(outcome)))].join('\n')
}

function section(summary: Summary): readonly string[] {
  const { store, cycles, killed, lost, errors, series } = summary
  const failed = Object.entries(errors).map(([code, count]) => `${count} × ${code}`)
  const shown = (value: number, unit: string): string => `${value.toFixed(2)}${unit === '' ? '' : ` ${unit}`}`
  return [
    `## ${store}`,
    '',
    `${cycles.toLocaleString('en')} calls by two processes, beside a third one that was killed ${killed} times. Lost leases: ${lost}. Unexpected errors: ${failed.join(', ') || 'none'}.`,
    '',
    '| | median | growth | |',
    '|---|---:|---:|---|',
    ...series.map(
      ({ label, unit, median, growth, isSeen, isLevel }) =>
        `| ${label} | ${shown(median, unit)} | ${shown(growth, unit)} | ${isLevel ? 'level' : isSeen ? '**grows**' : '**not seen**'} |`,
    ),
    '',
    `![Memory, handles and latencies on ${store} over time](${store}.svg)`,
    '',
  ]
}
