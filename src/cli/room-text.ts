import { UNLIMITED } from '../contract/index.ts'
import type { InspectedHolder, InspectedRoom, Owner } from '../index.ts'
import type { InspectedTicket } from '../room-watch/ticket-facts.ts'
import { age, plain } from './text.ts'

export { modeOf } from '../room-watch/ticket-facts.ts'

/** `host:pid (label)`, or the text of another program. */
export function ownerOf({ owner: { host, pid, label, text } }: Pick<InspectedTicket, 'owner'>): string {
  if (text !== undefined) return plain(text)
  return plain(`${host ?? '?'}:${pid ?? '?'}${label === undefined ? '' : ` (${label})`}`)
}

export function remainingOf({ state, remainingMs }: InspectedHolder): string {
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

/** A room as JSON for programs: fences as strings, no limit as `null`, owners as objects, or as the text of another program. */
export function roomJson({ key, holders, queue, closedMs }: InspectedRoom): object {
  const ticket = <T extends InspectedTicket>(of: T) => ({
    ...of,
    limit: of.limit === UNLIMITED ? null : of.limit,
    owner: of.owner.text ?? processOf(of.owner),
  })
  return { key, holders: holders.map(ticket), queue: queue.map(ticket), closedMs }
}

/** Without the `value` of a leader, which is not about its process. */
function processOf({ value: _value, ...facts }: Owner): Owner {
  return facts
}
