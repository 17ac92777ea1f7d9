import type { Ticket } from '../../contract/store.ts'
import type { EtcdRoom } from './rooms/room.ts'
import type { OwnTicket } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/** How many waiters stand before a ticket in its room, if the room is watched. */
export function ahead({ rooms }: Session, { key, id }: Ticket): number {
  return rooms.get(key)?.ahead(id) ?? 0
}

/**
 * When a waiter has to ask again: in time to stay remembered, and at the next expiry. Every waiter asks then, because all tickets
 * in front of it may belong to dead processes.
 */
export function askAgainMs(session: Session, { ticket }: OwnTicket): number {
  const stayingMs = Math.min(ticket.patienceMs / 3, (ticket.acceptMs * 2) / 3)
  const room = session.rooms.get(ticket.key)
  if (room === undefined) return Math.max(1, Math.ceil(stayingMs))
  // As in the law: only the head asks often, however short the lease in front of it is.
  const isHead =
    room.lockDelays.size > 0 ? ahead(session, ticket) === 0 : room.divide().head?.id === ticket.id
  const leastMs = isHead ? 1 : ticket.acceptMs / 6
  return Math.ceil(Math.min(stayingMs, Math.max(leastMs, untilChangeMs(session, room))))
}

/** When time alone may let a waiter in. This is exact for holders of this process. Others may be done sooner. */
export function untilChangeMs({ tickets, delays }: Session, room: EtcdRoom): number {
  const now = performance.now()
  let changeMs = Number.POSITIVE_INFINITY
  for (const { id, value } of room.divide().holders) {
    const state = tickets.get(id)?.state
    if (state?.tag === 'waiting') continue
    if (state === undefined) changeMs = Math.min(changeMs, 'ttlMs' in value ? value.ttlMs : 1)
    else changeMs = Math.min(changeMs, 'until' in state ? state.until - now : DELETION_MS)
  }
  for (const delay of room.lockDelays.values())
    changeMs = Math.min(changeMs, delays.leftMs(delay) || DELETION_MS)
  return changeMs === Number.POSITIVE_INFINITY ? 1 : Math.max(1, Math.ceil(changeMs))
}

/** For how long a key may go on being deleted. Waiters of this process are woken when it is done. */
const DELETION_MS = 200
