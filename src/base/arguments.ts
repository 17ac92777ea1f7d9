import { InvalidArgumentError } from '../errors.ts'
import { show } from './duration.ts'

/**
 * The checks of what a caller passes in. Public functions run them once; inside, arguments are trusted. Each check throws an
 * {@link InvalidArgumentError} in the words *Expected `name` to be …, got …*.
 */

/** The error for an argument: *Expected `name` to be `what`, got `got`.* */
export function expected(
  name: string,
  what: string,
  got: unknown,
  details: { readonly argument?: 'key' | undefined } = {},
): InvalidArgumentError {
  return new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${show(got)}.`, details)
}

/** Refuses unknown names: a misspelt option would otherwise have no effect, and nobody would notice. */
export function checkOptions(
  options: unknown,
  known: readonly string[] | ReadonlySet<string>,
  needs?: string,
): asserts options is object {
  checkObject(options, needs)
  for (const name of Object.keys(options)) {
    if (known instanceof Set ? known.has(name) : (known as readonly string[]).includes(name)) continue
    const names = Array.from(known, (one) => `\`${one}\``).join(', ')
    const got = name.length > LONGEST_NAME ? show(name) : `\`${name}\``
    throw new InvalidArgumentError(`Expected the options to be among ${names}, got ${got}.`)
  }
}

/** Whoever is shown a longer name of an option does not read it. */
const LONGEST_NAME = 60

/**
 * An object with options by name. Arrays and Maps are objects, too, but hold no options. `needs`: the option that the call
 * cannot do without.
 */
export function checkObject(options: unknown, needs?: string): asserts options is object {
  const isObject = typeof options === 'object' && options !== null
  if (isObject && !Array.isArray(options) && !(options instanceof Map)) return
  const what = needs === undefined ? 'an object' : `an object with \`${needs}\``
  const advice = typeof options === 'function' ? ' The work comes last, after the options.' : ''
  throw new InvalidArgumentError(`Expected the options to be ${what}, got ${show(options)}.${advice}`)
}

/** In characters. */
export const LONGEST_KEY = 1024

/** From `least` to `most`, both included. A `most` of Infinity allows Infinity itself. */
export interface CountRange {
  readonly least: number
  readonly most: number
}

export function parseCount(name: string, value: unknown, { least, most }: CountRange): number {
  const isEndless = most === Number.POSITIVE_INFINITY
  if (typeof value === 'number' && value >= least && value <= most) {
    if (Number.isSafeInteger(value) || (isEndless && value === most)) return value
  }
  const range = isEndless ? `${least} on, or Infinity` : `${least} to ${most}`
  throw expected(name, `a whole number from ${range}`, value)
}

export function parseFlag(name: string, value: unknown, otherwise: boolean): boolean {
  if (value === undefined) return otherwise
  if (typeof value === 'boolean') return value
  throw expected(name, 'true or false', value)
}

export function parseFunction<F>(name: string, value: F): F {
  if (typeof value === 'function') return value
  throw expected(name, 'a function', value)
}

/** The option `signal`, which may be left out. */
export function parseSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal
  throw expected('signal', 'an AbortSignal', signal)
}

/** The options that are given. An option that is `undefined` was left out, and must not hide the one of a URL. */
export function given<Options extends object>(options: Options): Partial<Options> {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as Partial<Options>
}
