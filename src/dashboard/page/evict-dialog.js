import { post } from './connection.js'
import { ask } from './dialog.js'
import { counted, ownerText } from './tickets.js'
/** @import { HolderJson, WaiterJson } from '../view-json.ts' */

/**
 * Asks for a reason before anything is evicted: one ticket, or all of the key.
 * @param {{ key: string, say: (text: string) => void, ticket?: HolderJson | WaiterJson, count?: number }} asked
 */
export function askToEvict({ key, ticket, count, say }) {
  ask({
    title: ticket === undefined ? 'Evict everybody?' : 'Evict?',
    facts: factsOf({ key, ticket, count }),
    warning: EVICTION,
    reason: REASON,
    action: 'Evict',
    say,
    async run(reason) {
      const { evicted } = await post('api/evict', { key, id: ticket?.id, reason })
      return evicted.length === 0
        ? 'There was nobody to evict any more.'
        : `Evicted: ${counted(evicted.length, 'ticket')}.`
    },
  })
}

/** @param {{ key: string, ticket: HolderJson | WaiterJson | undefined, count: number | undefined }} asked */
function factsOf({ key, ticket, count }) {
  /** @type {[string, string][]} */
  const facts = [['Key', key]]
  if (ticket === undefined) facts.push(['Holders and waiters', String(count)])
  else if ('fence' in ticket) facts.push(['Holder', ownerText(ticket.owner)], ['Fence', ticket.fence])
  else facts.push(['Waiter', ownerText(ticket.owner)])
  return facts
}

const REASON = 'Reason, which the holder is told'
const EVICTION =
  'The key goes to whoever is next at once. The holder is told, but it may be in the middle of a write: only a check of its fence stops that.'
