import { Ticks } from '../../base/ticks.ts'
import type { ScheduleDefinition } from './options.ts'

/** A schedule as far as its ticks depend on it. */
export interface Timing {
  readonly id: string
  readonly definition: ScheduleDefinition
  /** Ticks of `every` count from here. */
  readonly anchorMs: number
}

/** From where the ticks of `every` count: the tick after it is the first one. */
export function anchorOf({ everyMs, startMs }: ScheduleDefinition, nowMs: number): number {
  return everyMs === null || startMs === null ? nowMs : startMs - everyMs
}

/** The first tick later than that. Null: there is none, or it depends on the end of a job. */
export function tickAfter({ definition, anchorMs }: Timing, afterMs: number): number | null {
  const fromMs = Math.max(afterMs, (definition.startMs ?? afterMs + 1) - 1)
  return withinStop(definition, firstAfter(definition, { anchorMs, fromMs }))
}

/** The last tick that is not later than that. Null: there is none, or it depends on the end of a job. */
export function tickUntil({ definition, anchorMs }: Timing, untilMs: number): number | null {
  const { cron, timezone, everyMs, startMs } = definition
  const toMs = Math.min(untilMs, (definition.stopMs ?? untilMs + 1) - 1)
  let tick: number | undefined
  if (cron !== null) tick = ticksOf(cron, timezone ?? 'UTC').last(toMs)
  else if (everyMs !== null) tick = anchorMs + Math.floor((toMs - anchorMs) / everyMs) * everyMs
  if (tick === undefined || tick < (startMs ?? tick)) return null
  return everyMs !== null && tick <= anchorMs ? null : tick
}

/** The first tick of a new schedule, or of one that goes on after a pause. */
export function firstTick(timing: Timing, nowMs: number): number | null {
  const { afterEndMs, startMs } = timing.definition
  if (afterEndMs === null) return tickAfter(timing, nowMs)
  return withinStop(timing.definition, startMs !== null && startMs > nowMs ? startMs : nowMs + afterEndMs)
}

/** The tick of a schedule whose last job has ended. */
export function tickAfterEnd({ definition }: Timing, endedMs: number): number | null {
  return withinStop(definition, Math.max(endedMs + (definition.afterEndMs ?? 0), definition.startMs ?? 0))
}

/**
 * When the job of a tick is enqueued. The same for each process, and after each change. Always before the next tick: otherwise a later
 * tick could be due first, and would be missed while the schedule waits for the earlier one.
 */
export function dueMsOf({ id, definition, anchorMs }: Timing, tickMs: number): number {
  const { jitterMs } = definition
  if (jitterMs === 0) return tickMs
  const nextMs = firstAfter(definition, { anchorMs, fromMs: tickMs }) ?? Number.POSITIVE_INFINITY
  const longestMs = Math.min(jitterMs, nextMs - tickMs - 1)
  return tickMs + Math.floor(fractionOf(`${id} ${tickMs}`) * (longestMs + 1))
}

function firstAfter(
  { cron, timezone, everyMs }: ScheduleDefinition,
  { anchorMs, fromMs }: { readonly anchorMs: number; readonly fromMs: number },
): number | null {
  if (cron !== null) return ticksOf(cron, timezone ?? 'UTC').next(fromMs) ?? null
  if (everyMs === null) return null
  return anchorMs + Math.max(1, Math.floor((fromMs - anchorMs) / everyMs) + 1) * everyMs
}

function withinStop({ stopMs }: ScheduleDefinition, tickMs: number | null): number | null {
  return tickMs !== null && stopMs !== null && tickMs >= stopMs ? null : tickMs
}

/** Customers often share an expression, and to read one takes longer than to find its next tick. */
const known = new Map<string, Ticks>()
const MOST_KNOWN = 1000

function ticksOf(cron: string, timezone: string): Ticks {
  const key = `${timezone} ${cron}`
  let ticks = known.get(key)
  if (ticks === undefined) {
    if (known.size >= MOST_KNOWN) known.clear()
    ticks = new Ticks(cron, timezone, 'cron')
    known.set(key, ticks)
  }
  return ticks
}

/** From 0 to less than 1, by FNV-1a and the end of MurmurHash3, which spreads texts that differ in one digit. */
function fractionOf(text: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32
}
