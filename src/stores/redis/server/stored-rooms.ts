import { textsOf } from './answers.ts'
import { replyCode, unexpectedReply } from './failures.ts'
import { keptUntil, type StoredRoom } from './room-view.ts'

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

type Send = (command: 'MGET' | 'TYPE' | 'GET' | 'ZRANGE' | 'PTTL', args: string[]) => Promise<unknown>

/**
 * Reads rooms with commands of the category `@read` only, for a user that may not run scripts. Most rooms have a lone holder, so MGET
 * reads nearly all of them.
 */
export async function readByCommands(send: Send, names: readonly string[]): Promise<StoredRooms> {
  const portions = Array.from({ length: Math.ceil(names.length / TOGETHER) }, (_, at) =>
    loneTexts(send, names.slice(at * TOGETHER, (at + 1) * TOGETHER)),
  )
  const texts = (await Promise.all(portions)).flat()
  const contents = await Promise.all(
    names.map((name, at) => {
      const text = texts[at]
      return typeof text === 'string' ? text : contentOf(send, name)
    }),
  )
  return { nowMs: await serverTime(send, names, contents), contents }
}

/** The texts of rooms with a lone holder. For everything else there is none. */
async function loneTexts(send: Send, names: readonly string[]): Promise<readonly unknown[]> {
  const texts = await send('MGET', [...names])
  if (!Array.isArray(texts) || texts.length !== names.length) throw unexpectedReply(texts)
  return texts
}

/**
 * The server's time by these rooms, as TIME is not in the category `@read`. But every room says until when Redis keeps it, and PTTL
 * says how long that is from now: the difference is the server's time. If a room is renewed between the two commands, the difference
 * is too small. So the largest one of several rooms counts.
 */
async function serverTime(
  send: Send,
  names: readonly string[],
  contents: readonly StoredRoom[],
): Promise<number> {
  const rooms = names.flatMap((name, at) => {
    const content = contents[at] ?? []
    return keptUntil(content) === undefined ? [] : [{ name, content }]
  })
  for (let from = 0; from < rooms.length; from += ROOMS_FOR_TIME) {
    const times = await Promise.all(
      rooms.slice(from, from + ROOMS_FOR_TIME).map((room) => timeBy(send, room)),
    )
    const latest = Math.max(0, ...times.flatMap((time) => time ?? []))
    if (latest > 0) return latest
  }
  return 0
}

/** Undefined if the room is gone, is kept for ever, or is stored in another way by now. */
async function timeBy(
  send: Send,
  { name, content }: { readonly name: string; readonly content: StoredRoom },
): Promise<number | undefined> {
  // In this order: a renewal between the two makes the time too small and never too large.
  const [now, left] = await Promise.allSettled([
    typeof content === 'string' ? send('GET', [name]) : send('ZRANGE', [name, '0', '-1']),
    send('PTTL', [name]),
  ])
  if (left.status === 'rejected') throw left.reason
  if (typeof left.value !== 'number') throw unexpectedReply(left.value)
  if (now.status === 'rejected') {
    if (replyCode(now.reason) === 'WRONGTYPE') return undefined
    throw now.reason
  }
  const until = left.value < 0 ? undefined : keptUntil(storedRoom(now.value))
  return until === undefined ? undefined : until - left.value
}

async function contentOf(send: Send, name: string, attempt = 1): Promise<StoredRoom> {
  const type = await send('TYPE', [name])
  if (type !== 'string' && type !== 'zset') return []
  try {
    return storedRoom(await (type === 'string' ? send('GET', [name]) : send('ZRANGE', [name, '0', '-1'])))
  } catch (error) {
    // A waiter has come or gone since, which turns a text into a sorted set or back.
    if (replyCode(error) !== 'WRONGTYPE' || attempt === MOST_ATTEMPTS) throw error
    return contentOf(send, name, attempt + 1)
  }
}

/** An empty list if there is none. */
function storedRoom(content: unknown): StoredRoom {
  return typeof content === 'string' ? content : content === null ? [] : textsOf(content)
}

/** How many texts one reply has. Another program may have written megabytes into each. */
const TOGETHER = 20
/** A renewal between two commands is rare: that it hits all of so many rooms does not happen. */
const ROOMS_FOR_TIME = 8
const MOST_ATTEMPTS = 3
