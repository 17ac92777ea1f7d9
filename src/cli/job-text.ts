import { escaped } from '../base/text.ts'
import type { FailedAttempt, JobCount, JobDetails, JobsInTime, JobView, NamedLimit } from '../jobs/index.ts'
import { table } from './table.ts'
import { paintFor, roomOnScreen } from './terminal.ts'
import { age, exactly, givenJson, plain } from './text.ts'

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
  return painted(jobTable(jobs, roomOnScreen()))
}

/** A line of titles, then a line for each job. */
export function jobTable(jobs: readonly JobView[], room: number): readonly string[] {
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
  return table(columns, rows, room)
}

export function jobPage(job: JobDetails): readonly string[] {
  return painted(jobFacts(job))
}

/** All about a job, as lines of any length. */
export function jobFacts(job: JobDetails): readonly string[] {
  const facts: readonly (readonly [string, string | null])[] = [
    ['attempt', `${job.attempt}, ${job.failures} of ${job.maxAttempts} failed`],
    ['priority', String(job.priority)],
    ['key', job.key],
    ['group', job.group],
    ['group limit', job.groupLimit === 1 ? null : String(job.groupLimit)],
    ['children', job.children.length === 0 ? null : job.children.join(', ')],
    ['worker', job.worker],
    ['enqueued', time(job.enqueuedAt)],
    ['started', time(job.startedAt)],
    [job.state === 'running' ? 'lease until' : 'due', time(job.dueAt)],
    ['ended', time(job.endedAt)],
    ['payload', givenJson(job.payload)],
    ['progress', job.progress === null ? null : givenJson(job.progress)],
    ['result', job.result === null ? null : givenJson(job.result)],
  ]
  const known = facts.filter((fact): fact is readonly [string, string] => fact[1] !== null)
  const width = Math.max(...known.map(([name]) => name.length))
  // The error of a failed attempt is shown with that attempt.
  const isOwn = job.error !== null && job.failedAttempts.at(-1)?.error !== job.error
  const [first = '', ...rest] = isOwn ? textLines(job.error) : []
  return [
    `${job.id}  ${plain(job.name)}  ${job.state}`,
    ...known.map(([name, value]) => `  ${name.padEnd(width)}  ${escaped(value)}`),
    ...(isOwn ? [`  ${'error'.padEnd(width)}  ${first}`] : []),
    ...rest.map((line) => `  ${' '.repeat(width)}  ${line}`),
    ...job.failedAttempts.flatMap(attemptLines),
  ]
}

function attemptLines({ attempt, worker, startedAt, endedAt, error }: FailedAttempt): readonly string[] {
  const lasted = age(endedAt.getTime() - startedAt.getTime())
  const by = worker === null ? '' : ` by ${plain(worker)}`
  return [
    `  attempt ${attempt} failed at ${endedAt.toISOString()}, ${lasted} after its claim${by}`,
    ...textLines(error).map((line) => `    ${line}`),
  ]
}

function textLines(text: string | null): readonly string[] {
  return (text ?? '').split('\n').map(escaped)
}

export function pausedNames(limits: readonly NamedLimit[]): readonly string[] {
  return limits.filter(({ isPaused }) => isPaused).map(({ name }) => name)
}

/** `paused: mail, sms`. */
export function pausedText(names: readonly string[]): string {
  return `paused: ${names.map(plain).join(', ')}`
}

export function limitLines(limits: readonly NamedLimit[]): readonly string[] {
  const columns = [
    { title: 'NAME', narrow: 'cut' as const },
    { title: 'PAUSED' },
    { title: 'CONCURRENCY', align: 'right' as const },
    { title: 'RATE', align: 'right' as const },
  ]
  const rows = limits.map(({ name, isPaused, concurrency, rate }) => [
    plain(name),
    isPaused ? 'yes' : 'no',
    concurrency === null ? '–' : String(concurrency),
    rate === null ? '–' : `${rate.points} in ${exactly(rate.windowMs)}`,
  ])
  return painted(table(columns, rows, roomOnScreen()))
}

export function historyLines(steps: readonly JobsInTime[]): readonly string[] {
  return painted(historyTable(steps, roomOnScreen()))
}

/** A line of titles, then a line for each step of time. */
export function historyTable(steps: readonly JobsInTime[], room: number): readonly string[] {
  const columns = [
    { title: 'FROM' },
    { title: 'ENQUEUED', align: 'right' as const },
    { title: 'COMPLETED', align: 'right' as const },
    { title: 'DEAD', align: 'right' as const },
    { title: 'CANCELLED', align: 'right' as const },
    { title: 'SUPERSEDED', align: 'right' as const, narrow: 'drop' as const },
  ]
  const rows = steps.map(({ from, enqueued, completed, dead, cancelled, superseded }) => [
    from.toISOString(),
    ...[enqueued, completed, dead, cancelled, superseded].map(String),
  ])
  return table(columns, rows, room)
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
