import { StoreError } from '../../errors.ts'
import { replyCode, unexpectedReply } from '../redis/server/failures.ts'
import type { Script } from '../redis/server/scripts.ts'

/** Who a server is, and since when it has forgotten nothing. */
export interface Standing {
  /** Of its memory: two addresses with the same one are the same server. */
  readonly name: string
  /** Of the running process; undefined where the user may not ask for it. */
  readonly run: string | undefined
  /** Since when it remembers everything, on our monotonic clock; never too early. */
  readonly since: number
}

export interface StandingRequest {
  readonly script: Script
  readonly key: string
  /** For a memory that begins now. */
  readonly name: string
  /** The server's settings about its append-only file. */
  readonly settings: () => Promise<unknown>
}

export async function standingOf(
  run: (script: Script, args: string[]) => Promise<unknown>,
  { script, key, name, settings }: StandingRequest,
): Promise<Standing> {
  const keeps = await keepsEveryWrite(settings)
  const text = await run(script, ['', '1', key, name, keeps ? 'd' : 'v'])
  if (typeof text !== 'string') throw unexpectedReply(text)
  const answeredAt = performance.now()
  if (text === 'replica') {
    throw new StoreError('store-refused', REPLICA)
  }
  const [, memory = '', process = '-', ageMs] = /^(\S{1,100}) (\S{1,100}) (\d{1,16})$/.exec(text) ?? []
  if (ageMs === undefined) throw unexpectedReply(text)
  return { name: memory, run: process === '-' ? undefined : process, since: answeredAt - Number(ageMs) }
}

export const REPLICA =
  'Expected the Redis servers to be independent masters, got a replica among them. List masters only.'

/** Names and values one after the other, or by name where the client speaks RESP3. */
function listOf(reply: object): readonly unknown[] {
  return Array.isArray(reply) ? reply : Object.entries(reply).flat()
}

/** Then a restart loses nothing. Who may not ask has to wait after each restart. */
async function keepsEveryWrite(settings: () => Promise<unknown>): Promise<boolean> {
  try {
    const reply = await settings()
    const list = (typeof reply === 'object' && reply !== null ? listOf(reply) : []).map(String)
    const setting = (name: string): string | undefined => list[list.indexOf(name) + 1]
    return setting('appendonly') === 'yes' && setting('appendfsync') === 'always'
  } catch (error) {
    // Refused it may be. But without an answer the server is not asked on: it would be written down as one that forgets.
    if (replyCode(error) === undefined) throw error
    return false
  }
}
