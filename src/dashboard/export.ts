import type { ExportedList, ExportRow } from './export-file.ts'
import type { JobRowJson } from './job-view-json.ts'
import type { JobsLook } from './jobs-look.ts'
import { jobsRequestIn } from './jobs-request.ts'
import { keysView } from './keys-view.ts'
import type { LiveViewers } from './live.ts'
import { partitionsView } from './partitions-view.ts'
import { processesView } from './processes-view.ts'
import { ownerText } from './ticket-json.ts'
import { contentionView, lossesView } from './view.ts'
import type {
  ContentionJson,
  HolderJson,
  KeyRowJson,
  KeysJson,
  LossesJson,
  OwnerJson,
  PartitionKeyJson,
  PartitionsJson,
  ProcessesJson,
} from './view-json.ts'
import { viewRequestOf } from './view-request.ts'

/** The whole list that a page shows a part of. Undefined if there is none of that name. */
export async function exportedList(
  { live, jobs }: { readonly live: LiveViewers; readonly jobs: JobsLook | undefined },
  query: URLSearchParams,
): Promise<ExportedList | undefined> {
  const ofJobs = jobsRequestIn(query)
  if (ofJobs?.view === 'job') return undefined
  if (ofJobs !== undefined)
    return jobs === undefined ? undefined : listOf('jobs', jobRows(await jobs.all(ofJobs)))
  if (!LISTS.has(query.get('view') ?? 'keys')) return undefined
  const watch = await live.looked()
  const wanted = viewRequestOf(query)
  switch (wanted.view) {
    case 'keys':
      return listOf(
        'keys',
        keyRows(keysView(watch, { ...wanted, page: 'all', open: undefined }), watch.snapshot.at),
      )
    case 'losses':
      return listOf('losses', lossRows(lossesView(watch, { ...wanted, page: 'all' })))
    case 'processes':
      return listOf('processes', processRows(processesView(watch, { ...wanted, page: 'all' })))
    case 'partitions':
      return listOf('partitions', partitionRows(partitionsView(watch, { ...wanted, page: 'all' })))
    case 'contention':
      return listOf('contention', contentionRows({ rows: contentionView(watch, wanted.order) }))
    case 'key':
      return undefined
    default:
      return wanted satisfies never
  }
}

const LISTS: ReadonlySet<string> = new Set(['keys', 'losses', 'processes', 'partitions', 'contention'])

const OWNER = ['holder', 'host', 'pid'] as const
const TIMES = ['enqueuedAt', 'startedAt', 'dueAt', 'endedAt'] as const
/** Named here, as an empty list has its head, too. */
const COLUMNS = {
  keys: [
    ...['key', ...OWNER, 'mode', 'state', 'heldSince', 'heldMs', 'leftMs', 'ttlMs', 'notRenewingMs', 'fence'],
    ...['holders', 'waiting', 'longestWaitMs', 'isElection', 'observers'],
  ],
  losses: [
    ...['lostAt', 'key', ...OWNER, 'end', 'reason', 'heldMs', 'fence', 'ttlMs', 'renewedAt', 'heardAt'],
  ],
  processes: [...OWNER, 'state', 'heardAt', 'holds', 'waits'],
  partitions: ['partition', 'key', ...OWNER, 'fence', 'heldSince', 'movesTo'],
  contention: [
    ...['key', 'averageWaiting', 'mostWaiting', 'waiting', 'longestWaitMs', 'handOvers', ...OWNER],
  ],
  jobs: [
    ...['id', 'name', 'state', 'failures', 'maxAttempts', 'priority', 'key', 'group', 'worker', ...TIMES],
    'error',
  ],
} as const

type RowOf<List extends keyof typeof COLUMNS> = ExportRow<(typeof COLUMNS)[List][number]>

function listOf<List extends keyof typeof COLUMNS>(name: List, rows: readonly RowOf<List>[]): ExportedList {
  return { columns: COLUMNS[name], rows }
}

/** The keys, each with its first holder. */
function keyRows({ rows }: KeysJson, at: number): readonly RowOf<'keys'>[] {
  return rows
    .filter((row): row is KeyRowJson => row.tag === 'key')
    .map((row) => {
      const [holder] = row.holders
      return {
        key: row.key,
        ...ownerCells(holder?.owner),
        mode: holder?.mode ?? null,
        state: holder?.state ?? null,
        heldSince: holder === undefined ? null : time(at - holder.heldMs),
        ...holderCells(holder),
        holders: row.holding,
        waiting: row.waiting,
        longestWaitMs: row.waiting === 0 ? null : row.longestWaitMs,
        isElection: row.isElection,
        observers: row.isElection ? row.observers : null,
      }
    })
}

function holderCells(
  holder: HolderJson | undefined,
): ExportRow<'heldMs' | 'leftMs' | 'ttlMs' | 'notRenewingMs' | 'fence'> {
  const { heldMs = null, remainingMs = null, ttlMs = null, lateMs = null, fence = null } = holder ?? {}
  return { heldMs, leftMs: remainingMs, ttlMs, notRenewingMs: lateMs, fence }
}

function lossRows({ rows }: LossesJson): readonly RowOf<'losses'>[] {
  return rows.map(({ key, owner, untilAt, fromAt, end, reason, fence, ttlMs, renewedAt, heardAt }) => ({
    lostAt: time(untilAt),
    key,
    ...ownerCells(owner),
    end: end ?? null,
    reason: reason ?? null,
    heldMs: untilAt - fromAt,
    fence,
    ttlMs: ttlMs ?? null,
    renewedAt: time(renewedAt),
    heardAt: time(heardAt),
  }))
}

function processRows({ rows }: ProcessesJson): readonly RowOf<'processes'>[] {
  return rows.map(({ owner, state, heardAt, holding, waiting }) => ({
    ...ownerCells(owner),
    state,
    heardAt: time(heardAt),
    holds: holding,
    waits: waiting,
  }))
}

/** The keys of all partitions, each with its process. */
function partitionRows({ rows }: PartitionsJson): readonly RowOf<'partitions'>[] {
  return rows.flatMap(({ name, processes, free }) => {
    const rowOf = (
      owner: OwnerJson | undefined,
      [key, fence, fromAt, to]: PartitionKeyJson,
    ): RowOf<'partitions'> => ({
      partition: name,
      key,
      ...ownerCells(owner),
      fence: owner === undefined ? null : fence,
      heldSince: owner === undefined ? null : time(fromAt),
      movesTo: to === undefined ? null : ownerText(processes[to]?.owner ?? {}),
    })
    return [
      ...processes.flatMap(({ owner, keys }) => keys.map((key) => rowOf(owner, key))),
      ...free.map((key) => rowOf(undefined, key)),
    ]
  })
}

function contentionRows({ rows }: ContentionJson): readonly RowOf<'contention'>[] {
  return rows.map(
    ({ key, averageWaiting, mostWaiting, waiting, longestWaitMs, handOvers, holders: [holder] }) => ({
      key,
      averageWaiting,
      mostWaiting,
      waiting,
      longestWaitMs: waiting === 0 ? null : longestWaitMs,
      handOvers,
      ...ownerCells(holder?.owner),
    }),
  )
}

function jobRows(jobs: readonly JobRowJson[]): readonly RowOf<'jobs'>[] {
  return jobs.map((job) => ({
    id: job.id,
    name: job.name,
    state: job.state,
    failures: job.failures,
    maxAttempts: job.maxAttempts,
    priority: job.priority,
    key: job.key ?? null,
    group: job.group ?? null,
    worker: job.worker ?? null,
    enqueuedAt: time(job.enqueuedAt),
    startedAt: time(job.startedAt),
    dueAt: time(job.dueAt),
    endedAt: time(job.endedAt),
    error: job.error ?? null,
  }))
}

/** `holder` is the label, or the text of another program. */
function ownerCells(owner: OwnerJson | undefined): ExportRow<(typeof OWNER)[number]> {
  const { label, text, host = null, pid = null } = owner ?? {}
  return { holder: label ?? text ?? null, host, pid }
}

function time(at: number | undefined): string | null {
  return at === undefined ? null : new Date(at).toISOString()
}
