import { escaped, shortened, UNPRINTABLE } from '../base/text.ts'

/** Foreign text, escaped and shortened for one line of a terminal. */
export function plain(text: string): string {
  return escaped(shortened(text, LONGEST_TEXT))
}

/** Longer than every key, label and reason that Holdfast accepts. */
const LONGEST_TEXT = 2000

/** One line of JSON. Control characters are escaped, as it may be read in a terminal. What a user gave to a job stays as it is. */
export function json(value: unknown): string {
  const given = new WeakSet<object>()
  const text = JSON.stringify(value, function (this: object, name, field) {
    if (given.has(this) || OF_USERS.has(name)) {
      if (typeof field === 'object' && field !== null) given.add(field)
      return field
    }
    if (typeof field === 'bigint') return String(field)
    // Milliseconds with three decimals: further digits are noise.
    return typeof field === 'number' ? Math.round(field * 1000) / 1000 : field
  })
  return printable(text)
}

/** JSON of a user, in one line. */
export function givenJson(value: unknown): string {
  return printable(JSON.stringify(value))
}

const OF_USERS: ReadonlySet<string> = new Set(['payload', 'progress', 'result', 'jobOptions'])

function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) =>
    // JSON escapes UTF-16 units, not code points.
    Array.from({ length: character.length }, (_, unit) => {
      return `\\u${character.charCodeAt(unit).toString(16).padStart(4, '0')}`
    }).join(''),
  )
}

/** 950ms, 3.2s, 4m 05s, 2h 10m, 3d 4h. */
export function age(durationMs: number): string {
  if (durationMs < 999.5) return `${Math.round(durationMs)}ms`
  if (durationMs < 60_000) return `${(Math.floor(Math.max(1000, durationMs) / 100) / 10).toFixed(1)}s`
  const minutes = Math.floor(durationMs / 60_000)
  if (minutes < 60) return `${minutes}m ${pad(Math.floor(durationMs / 1000) % 60)}s`
  const hours = Math.floor(minutes / 60)
  return hours < 24 ? `${hours}h ${pad(minutes % 60)}m` : `${Math.floor(hours / 24)}d ${hours % 24}h`
}

/** A duration that somebody has set, to the millisecond: 1d 1h 30m, 1h 30s, 1s 500ms. */
export function exactly(durationMs: number): string {
  const parts: string[] = []
  let left = durationMs
  for (const [unit, unitMs] of UNITS) {
    const count = Math.floor(left / unitMs)
    left -= count * unitMs
    if (count > 0) parts.push(`${count}${unit}`)
  }
  return parts.join(' ') || '0ms'
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
] as const

function pad(number: number): string {
  return String(number).padStart(2, '0')
}

/** How many columns of a terminal the text takes. */
export function width(text: string): number {
  if (NARROW.test(text)) return text.length
  let columns = 0
  for (const character of text) columns += widthOf(character)
  return columns
}

function widthOf(character: string): number {
  return NARROWEST.test(character) ? 0 : WIDE.test(character) ? 2 : 1
}

/** Cuts the text to so many columns. The middle is left out, because keys differ at their ends. */
export function cut(text: string, columns: number): string {
  if (width(text) <= columns) return text
  if (columns < 1) return ''
  const characters = [...text]
  let room = columns - 1
  let [from, to] = [0, characters.length]
  for (;;) {
    const isStart = from <= characters.length - to
    const next = widthOf(characters[isStart ? from : to - 1] ?? '')
    if (next > room) break
    room -= next
    if (isStart) from += 1
    else to -= 1
  }
  return `${characters.slice(0, from).join('')}…${characters.slice(to).join('')}`
}

/** Lines of at most so many columns, broken at spaces; a longer word has a line of its own. */
export function wrap(text: string, columns: number): readonly string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const line = lines.at(-1)
    if (line === undefined || width(`${line} ${word}`) > columns) lines.push(word)
    else lines[lines.length - 1] = `${line} ${word}`
  }
  return lines
}

const NARROW = /^[ -~]*$/
const NARROWEST = /[\p{Mn}\p{Me}]/u
const WIDE =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1b000}-\u{1b2ff}\u{20000}-\u{3fffd}]/u
