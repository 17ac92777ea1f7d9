import type { Locks, RoomView } from '../index.ts'
import { boundedRoom } from '../room-watch/ticket-facts.ts'

/** One key as the store has it; `undefined` when nobody holds it or waits for it. */
export async function findRoom(locks: Locks, key: string): Promise<RoomView | undefined> {
  // The room whose key is the prefix itself comes first: whatever else there is need not be looked at.
  const first = await locks.inspect({ prefix: key, pageSize: 1 }).next()
  return first.done || first.value.key !== key ? undefined : boundedRoom(first.value)
}
