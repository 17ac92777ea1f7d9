import type { RawConnection } from './client-link.ts'
import { isMissingDatabase, replyCode } from './failures.ts'

/** Undefined where the user may not ask that, or the server does not know the command. */
export async function permitted(reply: Promise<unknown>): Promise<unknown> {
  try {
    return await reply
  } catch (error) {
    if (replyCode(error) === undefined || isMissingDatabase(error)) throw error
    return undefined
  }
}

/** A flat list, or a map where the client speaks RESP3. */
export function pairs(reply: unknown): readonly string[] {
  if (Array.isArray(reply)) return reply as string[]
  if (reply instanceof Map) return [...(reply as Map<string, string>)].flat()
  return typeof reply === 'object' && reply !== null
    ? Object.entries(reply as Record<string, string>).flat()
    : []
}

export function entries(reply: unknown): readonly (readonly [string, string])[] {
  const flat = pairs(reply)
  return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? ''] as const] : []))
}

/** Every user may ask HELLO, whose answer names the role. A proxy that does not know HELLO is no replica. */
export async function isOnReplica(connection: Pick<RawConnection, 'send'>): Promise<boolean> {
  const facts = new Map(entries(await permitted(connection.send('HELLO', []))))
  return facts.get('role') === 'replica'
}
