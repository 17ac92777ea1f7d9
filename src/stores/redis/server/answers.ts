import { AnswerReader } from '../../answers.ts'
import { unexpectedReply } from './failures.ts'

/**
 * The lines of a script's reply, as described at the top of each script. There is one for each ticket, then one for
 * each ticket to wake, and then one for each room that has more to admit. A server may be broken, so more lines than a
 * script can send are refused before they are read.
 *
 * @throws {StoreError} when it is no such reply.
 */
export function answerLines(reply: unknown, tickets: number): readonly string[] {
  if (typeof reply !== 'string') throw unexpectedReply(reply)
  const most = 2 * tickets + MOST_WAKES
  const lines = reply.split('\n', most + 1)
  const isWhole = lines.length >= tickets && lines.length <= most
  if (!isWhole || !lines.slice(tickets).every((line) => isRest(line, tickets))) throw unexpectedReply(reply)
  return lines
}

/** More wakes than one call can have. */
const MOST_WAKES = 1000

function isRest(line: string, tickets: number): boolean {
  return line[0] === '*' || (/^\+\d{1,6}$/.test(line) && Number(line) < tickets)
}

/** Lua counts in doubles, which are exact up to 2^53. */
const reader = new AnswerReader(unexpectedReply, { fenceDigits: 16, tellsTime: true })
export const acquireAnswer: AnswerReader['acquire'] = reader.acquire
export const renewAnswer: AnswerReader['renew'] = reader.renew
export const releaseAnswer: AnswerReader['release'] = reader.release

/** Reads the answer of the proof of rights: nothing, or why the server sends no messages for this user. */
export function probeAnswer(reply: unknown): { readonly isMute: boolean } {
  if (typeof reply !== 'string' || reply.includes('\n')) throw unexpectedReply(reply)
  return { isMute: reply !== '' }
}

/** Reads the answer of an eviction: whether there is more to evict or to admit, and which tickets were removed. */
export function evictAnswer(reply: unknown): {
  readonly more: 'to evict' | 'to admit' | undefined
  readonly removed: readonly string[]
} {
  const [rest, ...removed] = textsOf(reply)
  if (rest === undefined || !Object.hasOwn(MORE, rest) || removed.includes('')) throw unexpectedReply(reply)
  return { more: MORE[rest as keyof typeof MORE], removed }
}

const MORE = { '': undefined, '+': 'to admit', '>': 'to evict' } as const

/** @throws {StoreError} when it is no list of texts. */
export function textsOf(reply: unknown): readonly string[] {
  if (!Array.isArray(reply) || !reply.every((text) => typeof text === 'string')) throw unexpectedReply(reply)
  return reply
}
