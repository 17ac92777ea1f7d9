import type { Wake } from '../../../contract/store.ts'
import { AnswerReader } from '../../answers.ts'
import { unexpectedReply } from './failures.ts'

/**
 * The lines of a script's reply: one for each ticket, as described at the top of each script, and then whom to wake and which
 * rooms have more to admit. Whoever answers may be broken, so more than a script can say is refused before it is looked at.
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

/** More than one call admits. */
const MOST_WAKES = 1000

function isRest(line: string, tickets: number): boolean {
  return line[0] === '*' || (/^\+\d{1,6}$/.test(line) && Number(line) < tickets)
}

/** Lua counts in doubles, which are exact up to 2^53. */
const reader = new AnswerReader(unexpectedReply, { fenceDigits: 16, tellsTime: true })
export const acquireAnswer: AnswerReader['acquire'] = reader.acquire
export const renewAnswer: AnswerReader['renew'] = reader.renew
export const releaseAnswer: AnswerReader['release'] = reader.release

/**
 * A message to one ticket: its id, and if it is a lease also the fence and the server's time. Others may publish in this channel, too,
 * and what is no such message is an id that nobody here waits under.
 */
export function wakeOf(message: string): Exclude<Wake, { tag: 'all' }> {
  const [, id, fence, storeMs] = /^(\S{1,1000}) (\d{1,16}) (\d{13})$/.exec(message) ?? []
  if (id === undefined) return { tag: 'ticket', id: message }
  return { tag: 'granted', id, fence: BigInt(fence as string), storeMs: Number(storeMs) }
}

/** What the proof of rights answers: nothing, or why the server sends no messages for this user. */
export function probeAnswer(reply: unknown): { readonly isMute: boolean } {
  if (typeof reply !== 'string' || reply.includes('\n')) throw unexpectedReply(reply)
  return { isMute: reply !== '' }
}

/** What an eviction answers: whether the room has more to admit, and who was removed. */
export function evictAnswer(reply: unknown): {
  readonly hasMore: boolean
  readonly removed: readonly string[]
} {
  const [rest, ...removed] = textsOf(reply)
  if ((rest !== '' && rest !== '+') || removed.includes('')) throw unexpectedReply(reply)
  return { hasMore: rest === '+', removed }
}

/** @throws {StoreError} when it is no list of texts. */
export function textsOf(reply: unknown): readonly string[] {
  if (!Array.isArray(reply) || !reply.every((text) => typeof text === 'string')) throw unexpectedReply(reply)
  return reply
}
