import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** 12 random bytes per process, followed by a counter: a new random id for each ticket would cost more than a lock. */
const processPart: string = idStartOf(randomBytes(12))

/** On the command line, an id that begins with a hyphen would look like an option. */
export function idStartOf(bytes: Buffer): string {
  return bytes.toString('base64url').replace(/^-/, 'A')
}

/** The last two digits of the counter, so that most ids are made by joining two texts: a quarter of the time. */
const ENDS: readonly string[] = Array.from({ length: 36 ** 2 }, (_, end) => end.toString(36).padStart(2, '0'))
let start = processPart
let starts = 0
let ends = 0

/** A ticket id: unique for ever, and known before the first request is made. */
export function nextTicketId(): string {
  if (ends === ENDS.length) {
    ends = 0
    starts += 1
    start = `${processPart}${starts.toString(36)}`
  }
  const end = ENDS[ends] as string
  ends += 1
  return start + end
}

/** Spreads retries and renewals of many processes apart. Not for ids. */
export function chance(): number {
  return Math.random()
}

/** Facts about this process, for people who look at a lock and ask who holds it. */
export function describeOwner(label: string | undefined): string {
  return JSON.stringify({ host: hostname(), pid: process.pid, ...(label === undefined ? {} : { label }) })
}
