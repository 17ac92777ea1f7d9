import { type JobSelection, type Jobs, openJobs } from '../../jobs/index.ts'
import { type ActionOptions, refuseOptions } from '../action-options.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { interruption } from '../interruption.ts'
import { filterOf, isFiltered, isJobId, NO_FILTER } from '../job-filter.ts'
import {
  countLines,
  historyLines,
  jobLines,
  jobPage,
  limitLines,
  pausedNames,
  pausedText,
} from '../job-text.ts'
import { givenPostgresUrl } from '../postgres-url.ts'
import { complain, print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import type { JOB_ACTIONS } from './command.ts'

export async function manageJobs(given: ParsedArguments): Promise<number> {
  // The parser has checked the first word.
  const [word = 'count', ...ids] = given.words as readonly [JobAction?, ...string[]]
  refuseOptions(given, { command: 'jobs', action: word, options: OPTIONS_OF })
  const opened = await openJobs(givenPostgresUrl(given), { schema: given.text('schema') })
  try {
    return await ACTIONS[word](opened, given, ids)
  } finally {
    await opened.close()
  }
}

type JobAction = (typeof JOB_ACTIONS)[number]

const FILTER = Object.keys(NO_FILTER)

const OPTIONS_OF: ActionOptions<JobAction> = {
  count: [],
  ls: [...FILTER, 'limit', 'after'],
  show: [],
  retry: FILTER,
  cancel: [...FILTER, 'reason'],
  remove: FILTER,
  history: ['span', 'step', 'name'],
  pause: ['until-idle'],
  resume: [],
  limits: [],
}

const ACTIONS: Readonly<
  Record<JobAction, (jobs: Jobs, given: ParsedArguments, ids: readonly string[]) => Promise<number>>
> = { count, ls, show, retry, cancel, remove, history, pause, resume, limits }

async function count(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const [counts, limited] = await Promise.all([jobs.count(), jobs.limits()])
  const paused = pausedNames(limited)
  if (given.flag('json')) for (const each of counts) print(json(each))
  else {
    if (counts.length === 0) complain('there are no jobs')
    else for (const line of countLines(counts)) print(line)
    if (paused.length > 0) complain(pausedText(paused))
  }
  return EXIT.ok
}

async function ls(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const limit = given.count('limit', { least: 1, most: 1000 })
  const { jobs: found, next } = await jobs.list({ ...filterOf(given), limit, after: given.text('after') })
  if (given.flag('json')) for (const job of found) print(json(job))
  else if (found.length === 0) complain('there are no such jobs')
  else for (const line of jobLines(found)) print(line)
  if (next !== null) complain(`there are more than ${found.length}: see --limit, or --after ${next}`)
  return EXIT.ok
}

async function show(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const job = await jobs.find(onlyId(ids))
  if (job === null) return nothing(given, 'there is no job of this id (any more)')
  if (given.flag('json')) print(json(job))
  else for (const line of jobPage(job)) print(line)
  return EXIT.ok
}

async function retry(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const retried = await jobs.retry(selectionOf(given, ids))
  return report(given, 'retried', retried, 'there is no such job that is over and not completed')
}

async function cancel(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const selection = selectionOf(given, ids)
  const reason = given.text('reason')
  if (reason === undefined) throw new UsageError('Expected --reason followed by TEXT, got nothing.')
  const cancelled = await jobs.cancel(selection, { reason })
  return report(given, 'cancelled', cancelled, 'there is no such job that is not over')
}

async function remove(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const removed = await jobs.remove(selectionOf(given, ids))
  return report(given, 'removed', removed, 'there is no such job that is over')
}

async function history(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const span = given.duration('span', { leastMs: 1 })
  const step = given.duration('step', { leastMs: 1 }) ?? HISTORY_STEP_MS
  const steps = await jobs.countOverTime({ span, step, name: given.text('name') })
  if (given.flag('json')) for (const each of steps) print(json(each))
  else for (const line of historyLines(steps)) print(line)
  return EXIT.ok
}

const HISTORY_STEP_MS = 300_000

async function pause(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  const names = namesOf(words)
  const untilIdle = given.flag('until-idle')
  const options = { untilIdle, signal: untilIdle ? interruption() : undefined }
  // All are paused before any of them is waited for.
  for (const name of names) await jobs.pause(name)
  if (untilIdle) {
    complain(
      `${names.map(plain).join(', ')}: paused until \`holdfast jobs resume\`; waiting for the jobs that run`,
    )
    await Promise.all(names.map((name) => jobs.pause(name, options)))
  }
  return report(given, 'paused', names, '')
}

async function resume(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  const names = namesOf(words)
  const limited = await jobs.limits()
  const paused = names.filter((name) => limited.some((limit) => limit.name === name && limit.isPaused))
  for (const name of paused) await jobs.resume(name)
  return report(given, 'resumed', paused, 'there is no such name that is paused')
}

async function limits(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const limited = await jobs.limits()
  if (given.flag('json')) for (const each of limited) print(json(each))
  else if (limited.length === 0) complain('no name is paused or has a limit')
  else for (const line of limitLines(limited)) print(line)
  return EXIT.ok
}

function namesOf(words: readonly string[]): readonly string[] {
  if (words.length === 0) throw new UsageError('Expected NAME, got nothing.')
  return [...new Set(words)]
}

/** The jobs that are to be changed. Without IDs and without a filter it would be all of them. */
function selectionOf(given: ParsedArguments, ids: readonly string[]): JobSelection {
  const filter = filterOf(given)
  const isChosen = isFiltered(filter)
  if (isChosen === ids.length > 0)
    throw new UsageError(
      'Expected either IDs, or at least one of --state, --name, --id, --since and --before.',
    )
  return isChosen ? filter : ids.map(jobId)
}

function report(given: ParsedArguments, done: string, ids: readonly string[], otherwise: string): number {
  if (given.flag('json')) print(json({ [done]: ids }))
  else for (const id of ids) print(`${done} ${plain(id)}`)
  if (ids.length > 0) return EXIT.ok
  return nothing(given, otherwise)
}

function nothing(given: ParsedArguments, sentence: string): number {
  if (!given.flag('json')) complain(sentence)
  return EXIT.failed
}

function onlyId(ids: readonly string[]): string {
  const [id, more] = ids
  if (id === undefined) throw new UsageError('Expected ID, got nothing.')
  if (more !== undefined) throw expected('ID alone', 'given', more)
  return jobId(id)
}

function jobId(text: string): string {
  if (isJobId(text)) return text
  throw expected('ID', 'the id of a job, such as 4711', text)
}

function refuseWords([word]: readonly string[]): void {
  if (word !== undefined) throw expected('the command', 'given without another word', word)
}
