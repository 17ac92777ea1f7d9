import { checkOptions, parseCount } from '../base/arguments.ts'
import { type Duration, parseDuration } from '../base/duration.ts'
import { SPAN_RANGE } from './options.ts'

/** What the jobs of a name may do, in all processes together. */
export interface NameLimit {
  /** How many of them may run at once, from 1 to 1000. Default: any number. */
  readonly concurrency?: number | undefined
  /** `{ points: 10, window: '1m' }`: in any minute, no more than ten are claimed. Up to 1000 points. Default: any number. */
  readonly rate?: { readonly points: number; readonly window: Duration } | undefined
}

/** A name that is paused or has a limit. */
export interface NamedLimit {
  /** The name of the jobs. */
  readonly name: string
  /** Whether no job of the name begins. */
  readonly isPaused: boolean
  /** How many of them may run at once. `null`: any number. */
  readonly concurrency: number | null
  /** How many of them may be claimed within a window. `null`: any number. */
  readonly rate: { readonly points: number; readonly windowMs: number } | null
}

export interface ParsedLimit {
  readonly concurrency: number | undefined
  readonly rate: { readonly points: number; readonly windowMs: number } | undefined
}

/** A limit as the database answers it. */
export interface RawLimit {
  readonly name: string
  readonly isPaused: boolean
  readonly concurrency: number | null
  readonly points: number | null
  readonly windowMs: number | null
}

export function parseLimit(limit: NameLimit): ParsedLimit {
  checkOptions(limit, ['concurrency', 'rate'])
  const { concurrency, rate } = limit
  return {
    concurrency:
      concurrency === undefined
        ? undefined
        : parseCount('concurrency', concurrency, { least: 1, most: 1000 }),
    rate: rate === undefined ? undefined : parseRate(rate),
  }
}

function parseRate(rate: { readonly points: number; readonly window: Duration }): {
  points: number
  windowMs: number
} {
  checkOptions(rate, ['points', 'window'])
  return {
    points: parseCount('rate.points', rate.points, { least: 1, most: 1000 }),
    windowMs: parseDuration('rate.window', rate.window, SPAN_RANGE),
  }
}
