import { openJobs } from '../../jobs/index.ts'
import { createJobSchedules, type JobSchedules, type ScheduleSelection } from '../../jobs/schedules/index.ts'
import { type ActionOptions, refuseOptions } from '../action-options.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { givenPostgresUrl } from '../postgres-url.ts'
import { complain, print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import type { SCHEDULE_ACTIONS } from './command.ts'
import { scheduleLines, schedulePage } from './schedule-text.ts'

export async function manageSchedules(given: ParsedArguments): Promise<number> {
  // The parser has checked the first word.
  const [word = 'ls', ...ids] = given.words as readonly [ScheduleAction?, ...string[]]
  refuseOptions(given, { command: 'schedules', action: word, options: OPTIONS_OF })
  const jobs = await openJobs(givenPostgresUrl(given), { schema: given.text('schema') })
  try {
    return await ACTIONS[word](createJobSchedules(jobs), given, ids)
  } finally {
    await jobs.close()
  }
}

type ScheduleAction = (typeof SCHEDULE_ACTIONS)[number]

const FILTER = ['tenant', 'job']

const OPTIONS_OF: ActionOptions<ScheduleAction> = {
  ls: [...FILTER, 'state', 'limit', 'after'],
  show: [],
  pause: FILTER,
  resume: FILTER,
  remove: FILTER,
  run: [],
}

const ACTIONS: Readonly<
  Record<
    ScheduleAction,
    (schedules: JobSchedules, given: ParsedArguments, ids: readonly string[]) => Promise<number>
  >
> = { ls, show, pause, resume, remove, run }

async function ls(
  schedules: JobSchedules,
  given: ParsedArguments,
  words: readonly string[],
): Promise<number> {
  const [word] = words
  if (word !== undefined) throw expected('the command', 'given without another word', word)
  const limit = given.count('limit', { least: 1, most: 1000 })
  const { schedules: found, next } = await schedules.list({
    ...filterOf(given),
    ...{ state: given.choice('state'), limit, after: given.text('after') },
  })
  if (given.flag('json')) for (const schedule of found) print(json(schedule))
  else if (found.length === 0) complain('there are no such schedules')
  else for (const line of scheduleLines(found)) print(line)
  if (next !== null) complain(`there are more than ${found.length}: see --limit, or --after ${plain(next)}`)
  return EXIT.ok
}

async function show(
  schedules: JobSchedules,
  given: ParsedArguments,
  ids: readonly string[],
): Promise<number> {
  const id = onlyId(ids)
  const schedule = await schedules.find(id)
  if (schedule === null) return nothing(given, 'there is no schedule of this id')
  const nextRuns = await schedules.nextRuns(id, 5)
  if (given.flag('json')) print(json({ ...schedule, nextRuns }))
  else for (const line of schedulePage(schedule, nextRuns)) print(line)
  return EXIT.ok
}

async function pause(
  schedules: JobSchedules,
  given: ParsedArguments,
  ids: readonly string[],
): Promise<number> {
  const paused = await schedules.pause(selectionOf(given, ids))
  return report(given, 'paused', paused, 'there is no such schedule that is active')
}

async function resume(
  schedules: JobSchedules,
  given: ParsedArguments,
  ids: readonly string[],
): Promise<number> {
  const resumed = await schedules.resume(selectionOf(given, ids))
  return report(given, 'resumed', resumed, 'there is no such schedule that is paused')
}

async function remove(
  schedules: JobSchedules,
  given: ParsedArguments,
  ids: readonly string[],
): Promise<number> {
  const removed = await schedules.remove(selectionOf(given, ids))
  return report(given, 'removed', removed, 'there is no such schedule')
}

async function run(schedules: JobSchedules, given: ParsedArguments, ids: readonly string[]): Promise<number> {
  const jobId = await schedules.run(onlyId(ids))
  if (jobId === null) return nothing(given, 'there is no schedule of this id')
  print(given.flag('json') ? json({ jobId }) : `enqueued ${jobId}`)
  return EXIT.ok
}

/** The schedules that are to be changed. Without IDs and without a filter it would be all of them. */
function selectionOf(given: ParsedArguments, ids: readonly string[]): ScheduleSelection {
  const filter = filterOf(given)
  const isFiltered = Object.values(filter).some((value) => value !== undefined)
  if (isFiltered === ids.length > 0)
    throw new UsageError('Expected either IDs, or at least one of --tenant and --job.')
  return isFiltered ? filter : ids
}

function filterOf(given: ParsedArguments) {
  return { tenant: given.text('tenant'), job: given.text('job') }
}

function report(given: ParsedArguments, done: string, ids: readonly string[], otherwise: string): number {
  if (given.flag('json')) print(json({ [done]: ids }))
  else for (const id of ids) print(`${done} ${plain(id)}`)
  return ids.length > 0 ? EXIT.ok : nothing(given, otherwise)
}

function nothing(given: ParsedArguments, sentence: string): number {
  if (!given.flag('json')) complain(sentence)
  return EXIT.failed
}

function onlyId(ids: readonly string[]): string {
  const [id, more] = ids
  if (id === undefined) throw new UsageError('Expected ID, got nothing.')
  if (more !== undefined) throw expected('ID alone', 'given', more)
  return id
}
