import type { RoomView } from '../contract/store.ts'
import type { Room, StoreTime } from './room.ts'

/** The view of a room for people. It changes nothing: expired tickets are left out of the view and stay in the room. */
export function view(room: Room, key: string, time: StoreTime): RoomView {
  const holders = [...room.holders].filter(([, holder]) => holder.expiresAt > time.ms)
  const queue = [...room.queue].filter(([, waiter]) => waiter.rememberedUntil > time.ms)
  return {
    key,
    holders: holders.map(([id, holder]) => ({
      id,
      units: holder.ticket.units,
      limit: holder.ticket.limit,
      fence: BigInt(holder.fence),
      owner: holder.ticket.owner,
      heldMs: time.ms - holder.since,
      remainingMs: holder.expiresAt - time.ms,
      state: holder.state,
    })),
    queue: queue.map(([id, waiter]) => ({
      id,
      units: waiter.ticket.units,
      limit: waiter.ticket.limit,
      owner: waiter.ticket.owner,
      waitedMs: time.ms - waiter.since,
    })),
    closedMs: Math.max(0, closedUntil(room, time) - time.ms),
  }
}

/** Includes the lock-delay of holders that have expired and that no call has cleared yet. */
function closedUntil(room: Room, time: StoreTime): number {
  let until = room.closedUntil
  for (const { state, expiresAt, ticket } of room.holders.values()) {
    if (state === 'held' && expiresAt <= time.ms) until = Math.max(until, expiresAt + ticket.lockDelayMs)
  }
  return until
}
