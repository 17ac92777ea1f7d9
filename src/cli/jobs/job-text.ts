import { escaped } from '../../base/text.ts'
import type { JobCount, JobDetails, JobView } from '../../jobs/index.ts'
import { table } from '../table.ts'
import { paintFor, roomOnScreen } from '../terminal.ts'
import { age, json, plain } from '../text.ts'

export function countLines(counts: readonly JobCount[]): readonly string[] {
  const columns = [
    { title: 'NAME', narrow: 'cut' as const },
    { title: 'STATE' },
    { title: 'JOBS', align: 'right' as const },
    { title: 'OLDEST', align: 'right' as const },
  ]
  return painted(
    table(
      columns,
      counts.map(({ name, state, count, oldestMs }) => [plain(name), state, String(count), age(oldestMs)]),
      roomOnScreen(),
    ),
  )
}

export function jobLines(jobs: readonly JobView[]): readonly string[] {
  const columns = [
    { title: 'ID', align: 'right' as const },
    { title: 'NAME', narrow: 'cut' as const },
    { title: 'STATE' },
    { title: 'FAILED', align: 'right' as const },
    { title: 'AGE', align: 'right' as const, narrow: 'drop' as const },
    { title: 'WORKER', narrow: 'drop' as const },
    { title: 'ERROR', narrow: 'cut' as const },
  ]
  const rows = jobs.map((job) => [
    job.id,
    plain(job.name),
    job.state,
    `${job.failures} of ${job.maxAttempts}`,
    age(job.ageMs),
    plain(job.worker ?? '–'),
    shortened(job.error),
  ])
  return painted(table(columns, rows, roomOnScreen()))
}

export function jobPage(job: JobDetails): readonly string[] {
  const facts: readonly (readonly [string, string | null])[] = [
    ['attempt', `${job.attempt}, ${job.failures} of ${job.maxAttempts} failed`],
    ['priority', String(job.priority)],
    ['key', job.key],
    ['group', job.group],
    ['worker', job.worker],
    ['enqueued', time(job.enqueuedAt)],
    ['started', time(job.startedAt)],
    [job.state === 'running' ? 'lease until' : 'due', time(job.dueAt)],
    ['finished', time(job.finishedAt)],
    ['payload', json(job.payload)],
  ]
  const known = facts.filter((fact): fact is readonly [string, string] => fact[1] !== null)
  const width = Math.max(...known.map(([name]) => name.length))
  const [first = '', ...rest] = (job.error ?? '').split('\n').map(escaped)
  return [
    ...painted([`${job.id}  ${plain(job.name)}  ${job.state}`]),
    ...known.map(([name, value]) => `  ${name.padEnd(width)}  ${escaped(value)}`),
    ...(job.error === null ? [] : [`  ${'error'.padEnd(width)}  ${first}`]),
    ...rest.map((line) => `  ${' '.repeat(width)}  ${line}`),
  ]
}

function painted([titles = '', ...lines]: readonly string[]): readonly string[] {
  return [paintFor(process.stdout)('bold', titles), ...lines]
}

function shortened(error: string | null): string {
  const line = plain(error?.split('\n')[0] ?? '')
  return line.length > 60 ? `${line.slice(0, 59)}…` : line
}

function time(instant: Date | null): string | null {
  return instant === null ? null : instant.toISOString()
}
