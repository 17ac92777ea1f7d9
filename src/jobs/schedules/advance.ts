import type { ScheduleDefinition } from './options.ts'
import { dueMsOf, firstTick, type Timing, tickAfter, tickAfterEnd, tickUntil } from './timing.ts'

/** A schedule that is due. */
export interface DueSchedule extends Timing {
  /** Null: unknown until the last job has ended. */
  readonly tickMs: number | null
  /** When its tick is due, as it is stored. */
  readonly dueMs: number | null
  readonly runs: number
  /** Null: there was none. */
  readonly lastJob: { readonly hasEnded: boolean; readonly endedMs: number | null } | null
}

/** Ticks that became no job. */
export interface LeftOut {
  readonly count: number
  readonly firstMs: number
  readonly lastMs: number
  /** There were more of them, which are not counted. */
  readonly isAtLeast: boolean
}

/** What becomes of a due schedule. */
export interface Advance {
  /** The ticks that become jobs, in order. */
  readonly fires: readonly number[]
  readonly missed: LeftOut | null
  readonly overlapped: LeftOut | null
  /** Null: the schedule is over. */
  readonly next: NextLook | null
}

/** When to look at a schedule next, and for which tick. */
export interface NextLook {
  readonly tickMs: number | null
  readonly dueMs: number
}

/** Decides about a schedule that is due, by the time of the database. */
export function advanceOf(schedule: DueSchedule, nowMs: number): Advance {
  return schedule.definition.afterEndMs === null
    ? advanceTicks(schedule, nowMs)
    : advanceAfterEnd(schedule, { nowMs, afterEndMs: schedule.definition.afterEndMs })
}

/** When to look at a new schedule first, or at one that goes on after a change of its times or a pause. */
export function firstLook(schedule: Timing & Pick<DueSchedule, 'lastJob'>, nowMs: number): NextLook | null {
  const { afterEndMs } = schedule.definition
  if (afterEndMs !== null && schedule.lastJob?.hasEnded === false)
    return { tickMs: null, dueMs: nowMs + afterEndMs }
  return nextLook(schedule, firstTick(schedule, nowMs))
}

function nextLook(timing: Timing, tickMs: number | null): NextLook | null {
  return tickMs === null ? null : { tickMs, dueMs: dueMsOf(timing, tickMs) }
}

function advanceTicks(schedule: DueSchedule, nowMs: number): Advance {
  const { definition, runs, lastJob } = schedule
  const { due, missed, next } = sortTicks(schedule, nowMs)
  const left = (definition.maxRuns ?? Number.POSITIVE_INFINITY) - runs
  const most = definition.overlap === 'allow' ? left : lastJob === null || lastJob.hasEnded ? 1 : 0
  const fires = due.slice(0, Math.min(most, left))
  return {
    fires,
    missed,
    overlapped: leftOut(definition.overlap === 'allow' ? [] : due.slice(fires.length)),
    next: fires.length >= left ? null : nextLook(schedule, next),
  }
}

/**
 * Each job needs one look after its end. While it runs, a look for each `afterEnd` is often enough: the job has ended after the look
 * before, so its tick is still to come.
 */
function advanceAfterEnd(
  schedule: DueSchedule,
  { nowMs, afterEndMs }: { readonly nowMs: number; readonly afterEndMs: number },
): Advance {
  const { definition, lastJob, runs } = schedule
  const none = { fires: [], missed: null, overlapped: null }
  const awaiting = { tickMs: null, dueMs: nowMs + afterEndMs }
  // Also if its tick is known: somebody may have tried the last job again since it ended.
  if (lastJob?.hasEnded === false) return { ...none, next: awaiting }
  let tick = schedule.tickMs
  if (tick === null) {
    tick = tickAfterEnd(schedule, Math.min(lastJob?.endedMs ?? nowMs, nowMs))
    const next = nextLook(schedule, tick)
    if (tick === null || next === null || next.dueMs > nowMs) return { ...none, next }
  }
  return { ...none, fires: [tick], next: runs + 1 >= (definition.maxRuns ?? Infinity) ? null : awaiting }
}

interface SortedTicks {
  readonly due: readonly number[]
  readonly missed: LeftOut | null
  /** The first tick after those. */
  readonly next: number | null
}

/** Sorts the ticks that have come: those to fire, and those that were missed and are not made up for. */
function sortTicks(schedule: DueSchedule, nowMs: number): SortedTicks {
  const { definition } = schedule
  const due: number[] = []
  const missed: number[] = []
  const passed = { count: 0, isAtLeast: false }
  // The ticks before the last one until then are missed without a doubt, and may be many: each is due before the next tick.
  const sureMs = nowMs - Math.max(LATE_MS, definition.missed === 'all' ? bound(definition) : 0)
  const dueOf = (tickMs: number): number =>
    tickMs === schedule.tickMs && schedule.dueMs !== null ? schedule.dueMs : dueMsOf(schedule, tickMs)
  let tick = schedule.tickMs
  while (tick !== null && due.length < MOST_FIRES) {
    const lateMs = nowMs - dueOf(tick)
    if (lateMs < 0) break
    if (lateMs <= LATE_MS || (definition.missed === 'all' && lateMs <= bound(definition))) due.push(tick)
    else missed.push(tick)
    const after = tickAfter(schedule, tick)
    const isLong = missed.length >= MOST_COUNTED && after !== null && after < sureMs
    tick = after
    const beforeMs = isLong ? tickUntil(schedule, sureMs) : null
    const lastMs = beforeMs === null ? null : tickUntil(schedule, beforeMs - 1)
    if (beforeMs === null || lastMs === null || after === null || lastMs < after) continue
    tick = beforeMs
    missed.push(lastMs)
    // Ticks of `every` are counted by their distance. To find those of an expression takes time.
    if (definition.everyMs !== null) passed.count += (lastMs - after) / definition.everyMs
    else passed.isAtLeast ||= lastMs > after
  }
  const last = missed.at(-1)
  const makesUp = definition.missed === 'once' && due.length === 0 && last !== undefined
  if (makesUp && nowMs - dueOf(last) <= bound(definition)) {
    due.push(last)
    missed.pop()
  }
  return { due, missed: leftOut(missed, passed), next: tick }
}

function bound({ catchUpMs }: ScheduleDefinition): number {
  return catchUpMs ?? Number.POSITIVE_INFINITY
}

/** `passed`: ticks between the first and the last that are not in the list. */
function leftOut(
  ticks: readonly number[],
  passed: { readonly count: number; readonly isAtLeast: boolean } = { count: 0, isAtLeast: false },
): LeftOut | null {
  const [firstMs] = ticks
  if (firstMs === undefined) return null
  const { count, isAtLeast } = passed
  return { count: ticks.length + count, firstMs, lastMs: ticks.at(-1) ?? firstMs, isAtLeast }
}

/** Longer than a database needs to restart, or a process to start; as that of `createSchedule`. */
const LATE_MS = 30_000
/** In one statement. The others follow at once. */
const MOST_FIRES = 100
/** To find ticks takes time. */
const MOST_COUNTED = 1000
