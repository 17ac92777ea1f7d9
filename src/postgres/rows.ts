import { expected } from '../base/arguments.ts'
import type { ClientZone } from './executor.ts'
import { quoteIdentifier } from './identifiers.ts'

/**
 * A row of one of the user's tables. It is sent as one JSON text. `jsonb_populate_record(null::table, $1::text::jsonb)` turns it
 * into the table's types, which no client has to know. PostgreSQL reads each value as it would read a text literal.
 */
export type Columns = Readonly<Record<string, unknown>>

/** A name as it stands in a statement. It may have any characters that PostgreSQL allows in a quoted name. */
export function quoted(argument: string, name: unknown): string {
  if (typeof name === 'string' && name !== '' && !name.includes('\0')) return quoteIdentifier(name)
  throw expected(argument, 'a name', name)
}

/** `accounts` or `bank.accounts`, as a name in a statement. */
export function quotedTable(argument: string, table: unknown): string {
  if (typeof table !== 'string')
    throw expected(argument, "the name of a table, as 'table' or 'schema.table'", table)
  const parts = table.split('.')
  if (parts.length > 2) throw expected(argument, "the name of a table, as 'table' or 'schema.table'", table)
  return parts.map((part) => quoted(argument, part)).join('.')
}

/**
 * The columns of an id. Each has a value: nothing equals null, so an id with null would find no row. With undefined, which may be a
 * mistake, it would find more rows than one.
 */
export function parseId(id: unknown): Columns {
  const columns = parseColumns('id', id)
  for (const [name, value] of Object.entries(id as object)) {
    if (value === null || value === undefined) throw expected(`id.${name}`, 'a value', value)
  }
  const [first] = Object.keys(columns)
  if (first === undefined) throw expected('id', 'an object with at least one column', id)
  return columns
}

/** Columns and their values, without those that are undefined. Those that are left out need not have a value that can be written. */
export function parseColumns(
  argument: string,
  columns: unknown,
  isLeftOut: (name: string, value: unknown) => boolean = () => false,
): Columns {
  const isObject = typeof columns === 'object' && columns !== null
  if (!isObject || Array.isArray(columns) || columns instanceof Date || isOpaque(columns)) {
    throw expected(argument, 'an object with a value for each column', columns)
  }
  const present = Object.entries(columns).filter(
    ([name, value]) => value !== undefined && !isLeftOut(name, value),
  )
  for (const [name, value] of present) checkValue(`${argument}.${name}`, value)
  return Object.fromEntries(present)
}

/**
 * Also of an array or an object: JSON leaves a function out, and has `{}` for a Promise that nobody awaited.
 * @param above the objects that this value is inside of.
 */
function checkValue(name: string, value: unknown, above: readonly unknown[] = []): void {
  if (value instanceof Date && Number.isNaN(value.getTime())) throw expected(name, 'a valid date', value)
  if (above.includes(value)) throw expected(name, 'a value that does not contain itself', value)
  const json = jsonOf(value)
  if (isThenable(json)) throw expected(name, 'a value rather than a Promise (await it)', json)
  if (typeof json === 'function' || typeof json === 'symbol' || isOpaque(json)) {
    throw expected(name, 'a value that a column can have', json)
  }
  if (typeof json === 'object' && json !== null && !(json instanceof Uint8Array)) {
    const path = [...above, value]
    for (const inner of Object.values(json)) checkValue(name, inner, path)
  }
}

/** What JSON.stringify writes in place of the value. The `toJSON` of a Buffer needs no check. */
function jsonOf(value: unknown): unknown {
  const isObject = typeof value === 'object' && value !== null && !(value instanceof Uint8Array)
  return isObject && 'toJSON' in value && typeof value.toJSON === 'function' ? value.toJSON('') : value
}

/** Whether JSON writes nothing of its content, or an object where a typed array was. */
function isOpaque(value: unknown): boolean {
  if (ArrayBuffer.isView(value)) return !(value instanceof Uint8Array)
  const isBuffer = value instanceof ArrayBuffer || value instanceof SharedArrayBuffer
  return isBuffer || value instanceof Map || value instanceof Set || isThenable(value)
}

function isThenable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

export function rowText(columns: Columns, zone: ClientZone): string {
  const literals = Object.entries(columns).map(([name, value]) => [name, literal(value, zone)])
  // JSON has no bigint, NaN or Infinity. As texts they keep their value.
  return JSON.stringify(Object.fromEntries(literals), (_, value: unknown) => {
    const lost = typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value))
    if (value instanceof Map || value instanceof Set) return { [UNWRITABLE]: [...value] }
    return lost ? String(value) : value
  })
}

/**
 * Stands in the text of a value that a client reads and nobody can write. PostgreSQL has no text with this character, so the
 * value equals none that a caller gives.
 */
const UNWRITABLE = '\0'

/** JSON.stringify asks a Date or a Buffer for its JSON first, also in an array. PostgreSQL reads other texts. */
function literal(value: unknown, zone: ClientZone): unknown {
  if (Array.isArray(value)) return value.map((inner) => literal(inner, zone))
  if (value instanceof Uint8Array) return `\\x${Array.from(value, byteText).join('')}`
  if (!(value instanceof Date)) return value
  // postgres.js reads an infinite time as an invalid date.
  if (Number.isNaN(value.getTime())) return UNWRITABLE
  return zone === 'utc' ? value.toISOString() : localTime(value)
}

function byteText(byte: number): string {
  return byte.toString(16).padStart(2, '0')
}

/**
 * The local time with the offset of this process. A column with a time zone reads the instant. A column without one drops the
 * offset and keeps the local time, as pg reads it back. postgres.js does, too, except for the type date.
 */
function localTime(date: Date): string {
  const offsetMinutes = -date.getTimezoneOffset()
  const local = new Date(date.getTime() + offsetMinutes * 60_000).toISOString().slice(0, -1)
  const hours = Math.trunc(Math.abs(offsetMinutes) / 60)
  const minutes = Math.abs(offsetMinutes) % 60
  return `${local}${offsetMinutes < 0 ? '-' : '+'}${padded(hours)}:${padded(minutes)}`
}

function padded(number: number): string {
  return String(number).padStart(2, '0')
}
