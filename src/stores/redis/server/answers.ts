import type { AcquireAnswer, Gone, ReleaseAnswer, RenewAnswer } from '../../../contract/store.ts'
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

export function acquireAnswer(text: string): AcquireAnswer {
  switch (text[0]) {
    case 'h':
      return held(text)
    case 'q': {
      const [, ahead, askAgain] = /^q(\d{1,16}) (\d{1,16})$/.exec(text) ?? []
      if (ahead === undefined) throw unexpectedReply(text)
      return { tag: 'queued', ahead: Number(ahead), askAgainMs: Number(askAgain) }
    }
    case 'b':
      return { tag: 'busy', retryMs: durationOf(text) }
    default:
      return gone(text)
  }
}

export function renewAnswer(text: string): RenewAnswer {
  switch (text[0]) {
    case 'h':
      return held(text)
    case 'q':
      return { tag: 'queued', askAgainMs: durationOf(text) }
    default:
      return gone(text)
  }
}

export function releaseAnswer(text: string): ReleaseAnswer {
  const answer = RELEASED[text]
  if (answer === undefined) throw unexpectedReply(text)
  return answer
}

const RELEASED: Readonly<Record<string, ReleaseAnswer>> = {
  h: { was: 'held' },
  q: { was: 'queued' },
  u: { was: 'unknown' },
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

function held(text: string): { readonly tag: 'held'; readonly fence: bigint } {
  if (!/^h\d{1,16}$/.test(text)) throw unexpectedReply(text)
  return { tag: 'held', fence: BigInt(text.slice(1)) }
}

function durationOf(text: string): number {
  if (!/^.\d{1,16}$/.test(text)) throw unexpectedReply(text)
  return Number(text.slice(1))
}

function gone(text: string): Gone {
  if (text === 'g') return { tag: 'gone', evicted: false }
  if (text[0] !== 'e') throw unexpectedReply(text)
  return { tag: 'gone', evicted: true, reason: reasonIn(text) }
}

function reasonIn(text: string): string {
  try {
    return String(JSON.parse(text.slice(1)))
  } catch {
    throw unexpectedReply(text)
  }
}
