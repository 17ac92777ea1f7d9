import { textsOf } from './answers.ts'
import { replyCode, unexpectedReply } from './failures.ts'
import type { StoredRoom } from './room-view.ts'

/** What is stored under the names of some rooms, in their order, and the server's time when it was read. */
export interface StoredRooms {
  readonly nowMs: number
  readonly contents: readonly StoredRoom[]
}

/** Reads the reply of inspect.lua about so many rooms. */
export function inspectAnswer(reply: unknown, count: number): StoredRooms {
  const [nowMs, ...contents] = Array.isArray(reply) ? (reply as readonly unknown[]) : []
  if (typeof nowMs !== 'string' || !/^\d{1,16}$/.test(nowMs)) throw unexpectedReply(reply)
  return {
    nowMs: Number(nowMs),
    contents: Array.from({ length: count }, (_, at) => storedRoom(contents[at])),
  }
}

type Send = (
  command: 'MGET' | 'TYPE' | 'GET' | 'ZRANGE' | 'PTTL' | 'PEXPIRETIME',
  args: string[],
) => Promise<unknown>

/**
 * Reads rooms with commands of the category `@read` only, for a user that may not run scripts. Most rooms have a lone holder, so MGET
 * reads nearly all of them. Each lone holder takes one more command for its expiry, before Redis 7 two.
 */
export async function readByCommands(send: Send, names: readonly string[]): Promise<StoredRooms> {
  const portions = Array.from({ length: Math.ceil(names.length / TOGETHER) }, (_, at) =>
    loneTexts(send, names.slice(at * TOGETHER, (at + 1) * TOGETHER)),
  )
  const texts = (await Promise.all(portions)).flat()
  const contents = await Promise.all(
    names.map((name, at) => {
      const text = texts[at]
      return typeof text === 'string' ? withExpiry(send, name, text) : contentOf(send, name)
    }),
  )
  const kept = names.filter((_, at) => contents[at]?.length !== 0)
  return { nowMs: await serverTime(send, kept), contents }
}

/** The texts of rooms with a lone holder. For everything else there is none. */
async function loneTexts(send: Send, names: readonly string[]): Promise<readonly unknown[]> {
  const texts = await send('MGET', [...names])
  if (!Array.isArray(texts) || texts.length !== names.length) throw unexpectedReply(texts)
  return texts
}

/** `<expiresAt> <text>`, as in inspect.lua. An empty list if the key is gone by now. Without an expiry it is -1. */
async function withExpiry(send: Send, name: string, text: string): Promise<StoredRoom> {
  const expiresAt = (await expiryOf(send, name)) ?? (await expiryByOwnClock(send, name))
  return expiresAt < -1 ? [] : `${expiresAt} ${text}`
}

/** Before version 7 such a user cannot read the server's time. Then the clock of this process is used instead. */
async function expiryByOwnClock(send: Send, name: string): Promise<number> {
  const leftMs = await numberOf(send('PTTL', [name]))
  return leftMs < 0 ? leftMs : Date.now() + leftMs
}

/**
 * The server's time, as TIME is not in the category `@read`: PEXPIRETIME says until when Redis keeps a key, and PTTL says how long that
 * is from now. If a room is renewed between the two commands, the difference is too small. So the largest one of several rooms counts.
 */
async function serverTime(send: Send, names: readonly string[]): Promise<number> {
  for (let from = 0; from < names.length; from += ROOMS_FOR_TIME) {
    const times = await Promise.all(
      names.slice(from, from + ROOMS_FOR_TIME).map((name) => timeBy(send, name)),
    )
    const latest = Math.max(0, ...times.flatMap((time) => time ?? []))
    if (latest > 0) return latest
  }
  return 0
}

/** Undefined if the room is gone, or is kept for ever. Before version 7: the time of this process. */
async function timeBy(send: Send, name: string): Promise<number | undefined> {
  // In this order: a renewal between the two makes the time too small and never too large.
  const [expiresAt, leftMs] = await Promise.all([expiryOf(send, name), numberOf(send('PTTL', [name]))])
  if (expiresAt === undefined) return Date.now()
  return expiresAt < 0 || leftMs < 0 ? undefined : expiresAt - leftMs
}

/** Below 0 if the key is gone, or is kept for ever. Undefined if the server does not know the command. */
async function expiryOf(send: Send, name: string): Promise<number | undefined> {
  try {
    return await numberOf(send('PEXPIRETIME', [name]))
  } catch (error) {
    if (replyCode(error) === 'ERR') return undefined
    throw error
  }
}

async function numberOf(reply: Promise<unknown>): Promise<number> {
  const value = await reply
  if (typeof value !== 'number') throw unexpectedReply(value)
  return value
}

async function contentOf(send: Send, name: string, attempt = 1): Promise<StoredRoom> {
  const type = await send('TYPE', [name])
  if (type === 'none') return []
  if (type !== 'string' && type !== 'zset') return '?'
  try {
    if (type === 'zset') return storedRoom(await send('ZRANGE', [name, '0', '-1']))
    const text = await send('GET', [name])
    return typeof text === 'string' ? await withExpiry(send, name, text) : storedRoom(text)
  } catch (error) {
    // A waiter has come or gone since, which turns a text into a sorted set or back.
    if (replyCode(error) !== 'WRONGTYPE' || attempt === MOST_ATTEMPTS) throw error
    return contentOf(send, name, attempt + 1)
  }
}

/** An empty list if there is none. */
function storedRoom(content: unknown): StoredRoom {
  if (typeof content === 'string') return content === '' ? [] : content
  return content === null ? [] : textsOf(content)
}

/** How many texts one reply has. Another program may have written megabytes into each. */
const TOGETHER = 20
/** A renewal between two commands is rare: that it hits all of so many rooms does not happen. */
const ROOMS_FOR_TIME = 8
const MOST_ATTEMPTS = 3
