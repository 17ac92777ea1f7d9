import type { InspectedRoom, Locks } from '../index.ts'
import { boundedRoom } from '../room-watch/ticket-facts.ts'

/** The room of one key; `undefined` when the key has neither holders nor waiters. */
export async function findRoom(locks: Locks, key: string): Promise<InspectedRoom | undefined> {
  const room = await locks.peek(key)
  return room === null ? undefined : boundedRoom(room)
}
