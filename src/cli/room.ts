import type { InspectedRoom, Locks } from '../index.ts'
import { boundedRoom } from '../room-watch/ticket-facts.ts'

/** The room of one key; `undefined` when the key has neither holders nor waiters. */
export async function findRoom(locks: Locks, key: string): Promise<InspectedRoom | undefined> {
  // The room whose key equals the prefix comes first, so no other room has to be read.
  const first = await locks.inspect({ prefix: key, pageSize: 1 }).next()
  return first.done || first.value.key !== key ? undefined : boundedRoom(first.value)
}
