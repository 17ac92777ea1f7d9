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

type Send = (command: 'TYPE' | 'GET' | 'ZRANGE' | 'PTTL', args: string[]) => Promise<unknown>

/**
 * Reads rooms with commands of the category `@read` only, for a user that may not run scripts. TIME is not one of them. But every
 * room says until when Redis keeps it, and PTTL says how long that is from now: the difference is the server's time. If a room is
 * renewed between the two commands, the difference is too small. So the largest one counts.
 */
export async function readByCommands(send: Send, names: readonly string[]): Promise<StoredRooms> {
  const types = await Promise.all(names.map((name) => send('TYPE', [name])))
  const found = await Promise.all(names.map((name, at) => contentOf(send, name, types[at])))
  const times = found.flatMap(({ content, leftMs }) => {
    const until = leftMs < 0 ? undefined : keptUntil(content)
    return until === undefined ? [] : [until - leftMs]
  })
  return { nowMs: Math.max(0, ...times), contents: found.map(({ content }) => content) }
}

interface ReadRoom {
  readonly content: StoredRoom
  /** Below 0 if the key is gone, or is kept for ever. */
  readonly leftMs: number
}

async function contentOf(send: Send, name: string, type: unknown, attempt = 1): Promise<ReadRoom> {
  if (type !== 'string' && type !== 'zset') return NOTHING
  try {
    const [content, left] = await Promise.all([
      type === 'string' ? send('GET', [name]) : send('ZRANGE', [name, '0', '-1']),
      send('PTTL', [name]),
    ])
    if (typeof left !== 'number') throw unexpectedReply(left)
    return { content: storedRoom(content), leftMs: left }
  } catch (error) {
    // A waiter has come or gone since, which turns a text into a sorted set or back.
    if (replyCode(error) !== 'WRONGTYPE' || attempt === MOST_ATTEMPTS) throw error
    return contentOf(send, name, await send('TYPE', [name]), attempt + 1)
  }
}

/** An empty list if there is none. */
function storedRoom(content: unknown): StoredRoom {
  return typeof content === 'string' ? content : content === null ? [] : textsOf(content)
}

const NOTHING: ReadRoom = { content: [], leftMs: -2 }
const MOST_ATTEMPTS = 3
