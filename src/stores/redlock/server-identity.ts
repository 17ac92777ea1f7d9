import { StoreError } from '../../errors.ts'
import { replyCode, unexpectedReply } from '../redis/server/failures.ts'
import type { Script } from '../redis/server/scripts.ts'

/** Which server an address leads to, and since when the server has forgotten nothing. */
export interface ServerIdentity {
  /** The random name of the note beside the rooms; see identity.lua. Two addresses with the same name are one server. */
  readonly memoryName: string
  /** The run id of the server's process. Undefined if the user may not ask for `INFO`. */
  readonly runId: string | undefined
  /** Since when the server has lost nothing, by `performance.now()`. May be later than the truth, never earlier. */
  readonly rememberedSince: number
}

export interface IdentityRequest {
  readonly script: Script
  readonly key: string
  /** The name for the memory, if it begins now. */
  readonly newName: string
  /** The server's settings about its append-only file. */
  readonly settings: () => Promise<unknown>
}

export async function identityOf(
  run: (script: Script, args: string[]) => Promise<unknown>,
  { script, key, newName, settings }: IdentityRequest,
): Promise<ServerIdentity> {
  const keeps = await keepsEveryWrite(settings)
  const text = await run(script, ['', '1', key, newName, keeps ? 'd' : 'v'])
  if (typeof text !== 'string') throw unexpectedReply(text)
  const answeredAt = performance.now()
  if (text === 'replica') {
    throw new StoreError('store-refused', REPLICA)
  }
  const [, memoryName = '', runId = '-', ageMs] = /^(\S{1,100}) (\S{1,100}) (\d{1,16})$/.exec(text) ?? []
  if (ageMs === undefined) throw unexpectedReply(text)
  return { memoryName, runId: runId === '-' ? undefined : runId, rememberedSince: answeredAt - Number(ageMs) }
}

const INDEPENDENT = 'Expected the Redis servers to be independent masters, got'

export const REPLICA: string = `${INDEPENDENT} a replica among them. List masters only.`

/** Two addresses of one server would give it two votes. `places` count from 0. */
export function twiceError(places: readonly [number, number]): StoreError {
  const [first, second] = places[0] < places[1] ? places : [places[1], places[0]]
  return new StoreError(
    'store-refused',
    `${INDEPENDENT} one server twice: numbers ${first + 1} and ${second + 1} of the list are the same.`,
  )
}

/** Whether the error says that a server must not be in the list. */
export function isWrongServer(error: unknown): error is StoreError {
  return error instanceof StoreError && error.message.startsWith(INDEPENDENT)
}

/** The names and values in turn: a list in RESP2, an object in RESP3. */
function listOf(reply: object): readonly unknown[] {
  return Array.isArray(reply) ? reply : Object.entries(reply).flat()
}

/** Whether a restart loses nothing. If the user may not ask for the settings, a restart counts as a loss. */
async function keepsEveryWrite(settings: () => Promise<unknown>): Promise<boolean> {
  try {
    const reply = await settings()
    const list = (typeof reply === 'object' && reply !== null ? listOf(reply) : []).map(String)
    const setting = (name: string): string | undefined => list[list.indexOf(name) + 1]
    return setting('appendonly') === 'yes' && setting('appendfsync') === 'always'
  } catch (error) {
    // A refusal is an answer. Without any answer the identity is not asked for: it would record a loss that may not have
    // happened.
    if (replyCode(error) === undefined) throw error
    return false
  }
}
