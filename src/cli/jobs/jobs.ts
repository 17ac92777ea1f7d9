import { type JobState, type Jobs, type JobView, openJobs } from '../../jobs/index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { givenUrl } from '../store-option.ts'
import { complain, print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import type { JOB_ACTIONS } from './command.ts'
import { countLines, jobLines, jobPage } from './job-text.ts'

export async function manageJobs(given: ParsedArguments): Promise<number> {
  const [word = 'count', ...ids] = given.words
  const opened = await openJobs(urlOf(given), { schema: given.text('schema') })
  try {
    return await ACTIONS[word as JobAction](opened, given, ids)
  } finally {
    await opened.close()
  }
}

/** The parser has checked the first word. */
type JobAction = (typeof JOB_ACTIONS)[number]

const ACTIONS: Readonly<
  Record<JobAction, (jobs: Jobs, given: ParsedArguments, ids: readonly string[]) => Promise<number>>
> = { count, list, show, retry, cancel, remove }

async function count(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const counts = await jobs.count()
  if (given.flag('json')) for (const each of counts) print(json(each))
  else if (counts.length === 0) complain('there are no jobs')
  else for (const line of countLines(counts)) print(line)
  return EXIT.ok
}

async function list(jobs: Jobs, given: ParsedArguments, words: readonly string[]): Promise<number> {
  refuseWords(words)
  const state = given.choice<JobState>('state')
  const name = given.text('name')
  const limit = given.count('limit', { least: 1, most: 999_999_999 }) ?? 50
  const found: JobView[] = []
  let isCut = false
  for await (const job of jobs.inspect({ state, name })) {
    isCut = found.length === limit
    if (isCut) break
    found.push(job)
  }
  if (given.flag('json')) for (const job of found) print(json(job))
  else if (found.length === 0) complain('there are no such jobs')
  else for (const line of jobLines(found)) print(line)
  if (isCut) complain(`there are more than ${limit}: see --limit`)
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
  if (given.flag('dead') === ids.length > 0) throw new UsageError('Expected either IDs or --dead.')
  const chosen = given.flag('dead') ? await deadIds(jobs, given.text('name')) : ids
  const retried: string[] = []
  for (let from = 0; from < chosen.length; from += PORTION) {
    retried.push(...(await jobs.retry(chosen.slice(from, from + PORTION))))
  }
  return report(given, 'retried', retried, 'there is no such job that is over and not completed')
}

async function deadIds(jobs: Jobs, name: string | undefined): Promise<string[]> {
  const ids: string[] = []
  for await (const { id } of jobs.inspect({ state: 'dead', name })) ids.push(id)
  return ids
}

async function cancel(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const id = onlyId(ids)
  const reason = given.text('reason')
  if (reason === undefined) throw new UsageError('Expected --reason followed by TEXT, got nothing.')
  const cancelled = await jobs.cancel(id, { reason })
  return report(given, 'cancelled', cancelled, 'there is no such job that is not over')
}

async function remove(jobs: Jobs, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  if (ids.length === 0) throw new UsageError('Expected IDs, got nothing.')
  return report(given, 'removed', await jobs.remove(ids), 'there is no such job that is over')
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

const PORTION = 1000

function urlOf(given: ParsedArguments): string {
  const url = givenUrl(given)
  if (url !== undefined && /^postgres(ql)?:/i.test(url)) return url
  // Not the url itself, which may hold a password.
  const got = url === undefined ? 'nothing' : `one that begins with ${JSON.stringify(url.split(':')[0])}`
  throw new UsageError(`Expected --store or HOLDFAST_STORE to be a postgres:// url, got ${got}.`)
}

function onlyId(ids: readonly string[]): string {
  const [id, more] = ids
  if (id === undefined) throw new UsageError('Expected ID, got nothing.')
  if (more !== undefined) throw expected('ID alone', 'given', more)
  return id
}

function refuseWords([word]: readonly string[]): void {
  if (word !== undefined) throw expected('the command', 'given without another word', word)
}
