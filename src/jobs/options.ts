import { type DurationRange, HOLD_RANGE, show, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

const LIMIT_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 1 }
const POLL_RANGE: DurationRange = { ...HOLD_RANGE, leastMs: 20 }
const MOST_TEXT = 500

export { HOLD_RANGE, LIMIT_RANGE, POLL_RANGE, TTL_RANGE, WAIT_RANGE }

/** An options object with no names but the known ones: a misspelt option must not be one that is silently not there. */
export function checkOptions<Options extends object>(
  options: Options,
  known: readonly (keyof Options)[],
): Options {
  if (typeof options !== 'object' || options === null) throw expected('options', 'an object', options)
  const stranger = Object.keys(options).find((name) => !(known as readonly string[]).includes(name))
  if (stranger === undefined) return options
  const names = known.map((name) => `\`${String(name)}\``).join(', ')
  throw new InvalidArgumentError(`Expected \`options\` to have nothing but ${names}, got \`${stranger}\`.`)
}

export function parseWhole(name: string, value: unknown, range: { least: number; most: number }): number {
  if (Number.isSafeInteger(value) && (value as number) >= range.least && (value as number) <= range.most)
    return value as number
  throw expected(name, `a whole number from ${range.least} to ${range.most}`, value)
}

/** What PostgreSQL takes as text, and a notification or an index of two of them as well. */
export function parseText(name: string, value: unknown): string {
  const isText = typeof value === 'string' && value !== '' && !/\0|\p{Cs}/u.test(value) && isShort(value)
  if (isText) return value
  throw expected(name, `a text of 1 to ${MOST_TEXT} bytes (UTF-8) without U+0000`, value)
}

/** A character is three bytes at most (a pair of them four), so the long way is only for what is near the limit. */
function isShort(text: string): boolean {
  if (text.length > MOST_TEXT) return false
  return text.length * 3 <= MOST_TEXT || new TextEncoder().encode(text).length <= MOST_TEXT
}

/** Each of them once. */
export function parseNames(option: string, names: unknown): string[] {
  const list: readonly unknown[] = Array.isArray(names) ? names : [names]
  return [...new Set(list.map((name) => parseText(option, name)))]
}

export function parseIds(name: string, ids: unknown): string[] {
  const list = Array.isArray(ids) ? ids : [ids]
  const wrong = list.find((id) => typeof id !== 'string' || !/^[1-9]\d{0,17}$/.test(id))
  if (wrong === undefined) return list as string[]
  throw expected(name, 'the id of a job', wrong)
}

export function expected(name: string, what: string, value: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${show(value)}.`)
}
