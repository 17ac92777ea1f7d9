import type { Locks, RoomView } from '../index.ts'

/** One key as the store has it; `undefined` when nobody holds it or waits for it. */
export async function findRoom(locks: Locks, key: string): Promise<RoomView | undefined> {
  for await (const room of locks.inspect({ prefix: key })) if (room.key === key) return room
  return undefined
}
