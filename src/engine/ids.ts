import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

/** 96 random bits per process, followed by a counter: a new random id for each ticket would cost more than a lock. */
const processPart: string = randomBytes(12).toString('base64url')
let counter = 0

/** A ticket id: unique for ever, and known before the first request is made. */
export function nextTicketId(): string {
  counter += 1
  return `${processPart}${counter.toString(36)}`
}

/** Spreads retries and renewals of many processes apart. Not for ids. */
export function chance(): number {
  return Math.random()
}

/** Facts about this process, for people who look at a lock and ask who holds it. */
export function describeOwner(label: string | undefined): string {
  return JSON.stringify({ host: hostname(), pid: process.pid, ...(label === undefined ? {} : { label }) })
}
