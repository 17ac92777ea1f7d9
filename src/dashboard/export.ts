import type { ExportRow } from './export-file.ts'
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
export async function exportedRows(
  { live, jobs }: { readonly live: LiveViewers; readonly jobs: JobsLook | undefined },
  query: URLSearchParams,
): Promise<readonly ExportRow[] | undefined> {
  const ofJobs = jobsRequestIn(query)
  if (ofJobs?.view === 'job') return undefined
  if (ofJobs !== undefined) return jobs === undefined ? undefined : jobRows(await jobs.all(ofJobs))
  if (!LISTS.has(query.get('view') ?? 'keys')) return undefined
  const watch = await live.looked()
  const wanted = viewRequestOf(query)
  switch (wanted.view) {
    case 'keys':
      return keyRows(keysView(watch, { ...wanted, page: 'all', open: undefined }), watch.snapshot.at)
    case 'losses':
      return lossRows(lossesView(watch, { ...wanted, page: 'all' }))
    case 'processes':
      return processRows(processesView(watch, { ...wanted, page: 'all' }))
    case 'partitions':
      return partitionRows(partitionsView(watch, { ...wanted, page: 'all' }))
    case 'contention':
      return contentionRows({ rows: contentionView(watch, wanted.order) })
    case 'key':
      return undefined
    default:
      return wanted satisfies never
  }
}

const LISTS: ReadonlySet<string> = new Set(['keys', 'losses', 'processes', 'partitions', 'contention'])

/** The keys, each with its first holder. */
function keyRows({ rows }: KeysJson, at: number): readonly ExportRow[] {
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

function holderCells(holder: HolderJson | undefined): ExportRow {
  const { heldMs = null, remainingMs = null, ttlMs = null, lateMs = null, fence = null } = holder ?? {}
  return { heldMs, leftMs: remainingMs, ttlMs, notRenewingMs: lateMs, fence }
}

function lossRows({ rows }: LossesJson): readonly ExportRow[] {
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

function processRows({ rows }: ProcessesJson): readonly ExportRow[] {
  return rows.map(({ owner, state, heardAt, holding, waiting }) => ({
    ...ownerCells(owner),
    state,
    heardAt: time(heardAt),
    holds: holding,
    waits: waiting,
  }))
}

/** The keys of all partitions, each with its process. */
function partitionRows({ rows }: PartitionsJson): readonly ExportRow[] {
  return rows.flatMap(({ name, processes, free }) => {
    const rowOf = (owner: OwnerJson | undefined, [key, fence, fromAt, to]: PartitionKeyJson): ExportRow => ({
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

function contentionRows({ rows }: ContentionJson): readonly ExportRow[] {
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

function jobRows(jobs: readonly JobRowJson[]): readonly ExportRow[] {
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
function ownerCells(owner: OwnerJson | undefined): ExportRow {
  const { label, text, host = null, pid = null } = owner ?? {}
  return { holder: label ?? text ?? null, host, pid }
}

function time(at: number | undefined): string | null {
  return at === undefined ? null : new Date(at).toISOString()
}
