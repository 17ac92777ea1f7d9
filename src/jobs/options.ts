import { expected } from '../base/arguments.ts'
import { type DurationRange, HOLD_RANGE, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'

const LIMIT_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 1 }
const POLL_RANGE: DurationRange = { ...HOLD_RANGE, leastMs: 20 }
const SPAN_RANGE: DurationRange = { ...HOLD_RANGE, leastMs: 1 }
const MOST_TEXT = 500

export { HOLD_RANGE, LIMIT_RANGE, POLL_RANGE, SPAN_RANGE, TTL_RANGE, WAIT_RANGE }

/** A text that PostgreSQL accepts. A notification and an index accept two of them together as well. */
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

/** A date that PostgreSQL can read: it has no year 0. A year after 9999 begins with a sign. */
export function parseDate(name: string, date: unknown): Date {
  const isDate = date instanceof Date && Number.isFinite(date.getTime())
  if (isDate && /^(?!0000)\d{4}-/.test(date.toISOString())) return date
  throw expected(name, 'a valid Date of the years 1 to 9999', date)
}

/** Each of them once. */
export function parseNames(option: string, names: unknown): string[] {
  const list: readonly unknown[] = Array.isArray(names) ? names : [names]
  // Array.from visits the holes of an array, too.
  return [...new Set(Array.from(list, (name) => parseText(option, name)))]
}

export function parseId(name: string, id: unknown): string {
  const [parsed] = parseIds(name, typeof id === 'string' ? id : [id])
  return parsed as string
}

export function parseIds(name: string, ids: unknown): string[] {
  const list: readonly unknown[] = Array.isArray(ids) ? ids : [ids]
  const wrongAt = list.findIndex((id) => typeof id !== 'string' || !/^[1-9]\d{0,17}$/.test(id))
  if (wrongAt === -1) return list as string[]
  throw expected(name, 'the id of a job', list[wrongAt])
}
