import { UNLIMITED } from '../contract/index.ts'
import type { HolderView, RoomView } from '../index.ts'
import { ownerFactsOf, type TicketView } from '../room-watch/ticket-facts.ts'
import { age, plain } from './text.ts'

export { modeOf } from '../room-watch/ticket-facts.ts'

/** `host:pid (label)`, or the text as it is where another program wrote it. */
export function ownerOf({ owner }: Pick<TicketView, 'owner'>): string {
  const facts = ownerFactsOf(owner)
  if (facts === undefined) return plain(owner)
  const label = facts.label === undefined ? '' : ` (${facts.label})`
  return plain(`${facts.host}:${facts.pid}${label}`)
}

export function remainingOf({ state, remainingMs }: HolderView): string {
  switch (state) {
    case 'held':
      return age(remainingMs)
    case 'offered':
      return `${age(remainingMs)} to accept`
    case 'leaving':
      return `${age(remainingMs)} min-hold`
    default:
      return state satisfies never
  }
}

/** A room as JSON for programs: fences as strings, no limit as `null`, owners as objects where they can be parsed. */
export function roomJson({ key, holders, queue, closedMs }: RoomView): object {
  const ticket = <T extends TicketView>(of: T) => ({
    ...of,
    limit: of.limit === UNLIMITED ? null : of.limit,
    owner: ownerFactsOf(of.owner) ?? of.owner,
  })
  return { key, holders: holders.map(ticket), queue: queue.map(ticket), closedMs }
}
