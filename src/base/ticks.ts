import { Cron } from 'croner'
import { InvalidArgumentError } from '../errors.ts'
import { expected } from './arguments.ts'
import { show } from './duration.ts'

/** When an expression says that it is time, in milliseconds since 1970. Whole seconds, the same on every machine. */
export class Ticks {
  readonly #cron: Cron

  /**
   * `name`: that of the argument, for the message.
   *
   * @throws {InvalidArgumentError} when the expression or the zone is none.
   */
  constructor(expression: string, timezone: string, name = 'expression') {
    checkTimezone(timezone)
    this.#cron = parse(expression, { timezone, name })
  }

  /** The first one later than that; `undefined` when there is none. */
  next(afterMs: number): number | undefined {
    return this.#cron.nextRun(new Date(afterMs))?.getTime()
  }

  /** The last one that is not later than that; `undefined` when there is none. */
  last(untilMs: number): number | undefined {
    return this.#cron.previousRuns(1, new Date(untilMs + 1))[0]?.getTime()
  }
}

export function checkTimezone(timezone: unknown): asserts timezone is string {
  try {
    if (typeof timezone === 'string' && timezone !== '') {
      new Intl.DateTimeFormat('en', { timeZone: timezone })
      return
    }
  } catch {
    // Said below.
  }
  throw expected('timezone', "an IANA time zone, such as 'Europe/Berlin' or 'UTC'", timezone)
}

function parse(
  expression: unknown,
  { timezone, name }: { readonly timezone: string; readonly name: string },
): Cron {
  let cause: unknown
  if (typeof expression === 'string' && expression.length > LONGEST_EXPRESSION) {
    throw new InvalidArgumentError(
      `Expected \`${name}\` to have at most ${LONGEST_EXPRESSION} characters, got ${expression.length}.`,
    )
  }
  try {
    if (typeof expression === 'string') {
      const cron = new Cron(expression, { timezone, paused: true, fixedTimeRule: 'no-wildcard' })
      // A date is no expression, although croner takes one.
      if (cron.getPattern() !== undefined) return cron
    }
  } catch (error) {
    cause = error
  }
  throw new InvalidArgumentError(
    `Expected \`${name}\` to be a cron expression of 5, 6 (seconds first) or 7 (years last) fields, got ${show(expression)}.`,
    { cause },
  )
}

/** It is a part of a key, next to the name and the zone. All minutes and seconds one by one are not longer. */
const LONGEST_EXPRESSION = 400
