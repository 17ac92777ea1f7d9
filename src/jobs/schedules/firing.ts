import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { paused, systemClock } from '../../base/clock.ts'
import { isHoldfastError, StoreError } from '../../errors.ts'
import { parseNewJob } from '../new-job.ts'
import type { JobsParts } from '../parts.ts'
import { type Advance, advanceOf } from './advance.ts'
import type { ScheduleListeners } from './listeners.ts'
import { type AdvanceRow, type Fired, type ScheduleTables, written } from './schedule-tables.ts'
import { lastJobOf, type RawSchedule } from './stored-schedule.ts'
import { readSchedule } from './unreadable.ts'

export interface FiringParts extends Pick<JobsParts, 'wakes' | 'endWithJobs'> {
  readonly tables: ScheduleTables
  readonly pollMs: number
  readonly listeners: ScheduleListeners
}

/**
 * Fires the schedules that are due, in this process. Each round is two statements: what is due, and the jobs of it. The database
 * refuses the second one for a schedule that another process has fired meanwhile.
 */
export class Firing {
  readonly #parts: FiringParts
  readonly #stopping = new AbortController()
  readonly #ended: Promise<void>
  #wake = new AbortController()
  /** A message has come since the last look. */
  #isWoken = false
  #recordAt = 0
  /** The versions of schedules that this process cannot read, or that the database refuses, by their ids. Others may fire them. */
  readonly #skipped = new Map<string, number>()
  #tryAgainAt = 0

  constructor(parts: FiringParts) {
    this.#parts = parts
    const listener = { wake: (name: string | null) => this.#onMessage(name) }
    parts.wakes.add(listener)
    parts.endWithJobs.add(this)
    this.#ended = this.#keepFiring().finally(() => {
      parts.wakes.delete(listener)
      parts.endWithJobs.delete(this)
    })
  }

  /** Resolves when the current round is over. */
  stop(): Promise<void> {
    this.#stopping.abort()
    return this.#ended
  }

  /** The name of a job, empty for a schedule, null if messages may have been lost. */
  #onMessage(name: string | null): void {
    if (name !== '' && name !== null) return
    this.#isWoken = true
    this.#wake.abort()
  }

  /** Never rejects. */
  async #keepFiring(): Promise<void> {
    const { listeners } = this.#parts
    for (let failures = 0; !this.#stopping.signal.aborted; ) {
      try {
        const pauseMs = await this.#fireDue()
        failures = 0
        await this.#pause(pauseMs)
      } catch (error) {
        if (this.#stopping.signal.aborted) return
        listeners.onError(error)
        failures += 1
        await paused(systemClock, backoffMs(ASKING_AGAIN, failures), this.#stopping.signal)
      }
    }
  }

  /** Fires what is due, and resolves with the time until the next look. */
  async #fireDue(): Promise<number> {
    const { tables, wakes, pollMs } = this.#parts
    wakes.probe()
    this.#trySkippedAgain()
    for (let passed = 0; !this.#stopping.signal.aborted; ) {
      this.#isWoken = false
      const asked = { most: MOST_AT_ONCE, passed, skipped: this.#skipped }
      const { due, nowMs, againMs, hasOpen } = await tables.due(asked)
      if (hasOpen) await this.#recordOutcomes()
      if (due.length === 0 && passed === 0) return this.#pauseMs({ againMs, hasOpen, pollMs })
      const isAlone = due.length === 0 || (await this.#fire(due, nowMs))
      // Others fire the same ones. If there are many, this process goes on at another place.
      passed = isAlone || due.length < MOST_AT_ONCE ? 0 : MOST_AT_ONCE * Math.floor(Math.random() * 8)
    }
    return 0
  }

  /** Resolves with whether no other process has fired or changed one of them meanwhile. */
  async #fire(due: readonly RawSchedule[], nowMs: number): Promise<boolean> {
    const advances = new Map<string, Advance>()
    const rows: AdvanceRow[] = []
    for (const part of newestAndOldest(due)) {
      let jobs = 0
      for (const raw of part) {
        if (jobs >= MOST_JOBS_OF_PART) break
        const read = this.#read(raw, nowMs)
        if (read === undefined) continue
        advances.set(raw.id, read.advance)
        rows.push(read.row)
        jobs += read.advance.fires.length
      }
    }
    if (rows.length === 0) return true
    const fired = await this.#fireRows(rows)
    const byId = new Map(due.map((raw) => [raw.id, raw]))
    for (const { id, jobs: jobIds } of fired) {
      const raw = byId.get(id)
      const advance = advances.get(id)
      if (raw !== undefined && advance !== undefined) this.#parts.listeners.tell(raw, { advance, jobIds })
    }
    return fired.length === rows.length
  }

  /** If the database refuses what one of them enqueues, the others fire all the same: each is sent alone. */
  async #fireRows(rows: readonly AdvanceRow[]): Promise<readonly Fired[]> {
    try {
      return await this.#parts.tables.fire(rows)
    } catch (error) {
      if (!isHoldfastError(error, 'store-refused')) throw error
      const [row] = rows
      if (rows.length === 1 && row !== undefined) {
        this.#skip(row, refusedError(row.id, error))
        return []
      }
    }
    const fired: Fired[] = []
    try {
      for (const row of rows) fired.push(...(await this.#fireRows([row])))
    } catch (error) {
      // Listeners hear of those that have fired. The next look meets the same error.
      if (fired.length === 0) throw error
    }
    return fired
  }

  #skip({ id, version }: Pick<RawSchedule, 'id' | 'version'>, error: unknown): void {
    if (!this.#skipped.has(id)) this.#parts.listeners.onError(error)
    this.#skipped.set(id, version)
  }

  /** Undefined: this process cannot read the schedule. */
  #read(
    raw: RawSchedule,
    nowMs: number,
  ): { readonly advance: Advance; readonly row: AdvanceRow } | undefined {
    try {
      return readSchedule(raw, () => {
        const advance = advanceOf({ ...raw, lastJob: lastJobOf(raw) }, nowMs)
        return { advance, row: rowOf(raw, advance) }
      })
    } catch (error) {
      this.#skip(raw, error)
      return undefined
    }
  }

  /** Now and then, so that `onError` hears of them again. And those that were removed are forgotten. */
  #trySkippedAgain(): void {
    if (performance.now() < this.#tryAgainAt) return
    this.#tryAgainAt = performance.now() + TRY_AGAIN_MS
    this.#skipped.clear()
  }

  /** Before the jobs are deleted. */
  async #recordOutcomes(): Promise<void> {
    if (performance.now() < this.#recordAt) return
    this.#recordAt = performance.now() + RECORD_EVERY_MS
    while ((await this.#parts.tables.recordOutcomes()) && !this.#stopping.signal.aborted);
  }

  #pauseMs({
    againMs,
    hasOpen,
    pollMs,
  }: {
    againMs: number | null
    hasOpen: boolean
    pollMs: number
  }): number {
    // A little at random, so that one process has fired before the others look.
    const next = againMs === null ? Number.POSITIVE_INFINITY : againMs + Math.random() * SPREAD_MS
    return Math.min(next, pollMs, hasOpen ? RECORD_EVERY_MS : Number.POSITIVE_INFINITY)
  }

  /** Until the time is over, or a message comes. Keeps the process alive. */
  async #pause(pauseMs: number): Promise<void> {
    this.#wake = new AbortController()
    if (this.#isWoken) this.#wake.abort()
    await paused(systemClock, pauseMs, this.#wake.signal, this.#stopping.signal)
    // Many changes together are one look.
    if (this.#isWoken) await paused(systemClock, SPREAD_MS, this.#stopping.signal)
  }
}

/** Each has its share of the jobs: schedules that make up for an outage leave room for those that are due just now. */
function newestAndOldest(due: readonly RawSchedule[]): readonly (readonly RawSchedule[])[] {
  const newestFirst = due.toSorted((one, other) => (other.dueMs ?? 0) - (one.dueMs ?? 0))
  const half = Math.ceil(due.length / 2)
  return [newestFirst.slice(0, half), newestFirst.slice(half).reverse()]
}

function rowOf(raw: RawSchedule, { fires, missed, overlapped, next }: Advance): AdvanceRow {
  const job = { name: raw.job, ...raw.definition.jobOptions }
  const { payload: _, ...entry } = parseNewJob(job, 0, { maxPayloadBytes: MOST_PAYLOAD_BYTES })
  return {
    ...{ id: raw.id, version: raw.version, fires, entry },
    ...{ missed: missed?.count ?? 0, overlapped: overlapped?.count ?? 0, ...written(next) },
  }
}

function refusedError(id: string, cause: unknown): StoreError {
  return new StoreError(
    'store-refused',
    `PostgreSQL refused the job of the schedule ${JSON.stringify(id)}. Its words are in the \`cause\`. Look at the triggers, constraints and grants of the jobs.`,
    { cause },
  )
}

/** The largest payload of a schedule. One statement may fire some hundreds of them. */
export const MOST_PAYLOAD_BYTES = 65_536
const MOST_AT_ONCE = 200
/** Of the newest, and of the oldest. */
const MOST_JOBS_OF_PART = 250
const SPREAD_MS = 20
/** Sooner than most jobs are deleted. */
const RECORD_EVERY_MS = 20_000
const TRY_AGAIN_MS = 60_000
const ASKING_AGAIN: Backoff = { firstMs: 250, longestMs: 10_000, jitter: 0.25 }
