import { post } from './connection.js'
import { ask } from './dialog.js'
import { counted, ownerText } from './tickets.js'
/** @import { HolderJson, WaiterJson } from '../view-json.ts' */

/**
 * Asks for a reason before anything is evicted: one ticket, or all that are shown of the key. Whoever comes while the question is
 * open stays.
 * @param {{
 *   key: string,
 *   tickets: readonly (HolderJson | WaiterJson)[],
 *   say: (text: string) => void,
 *   count?: number,
 * }} asked `count`: how many tickets the key has, if all of them are meant
 */
export function askToEvict({ key, tickets, count, say }) {
  ask({
    title: count === undefined ? 'Evict?' : 'Evict everybody?',
    facts: factsOf({ key, tickets, count }),
    warning: count === undefined ? EVICTION : `${EVICTION} Whoever comes from now on stays.`,
    reason: REASON,
    action: 'Evict',
    say,
    async run(reason) {
      let evicted = 0
      for (const ids of portionsOf(tickets.map(({ id }) => id)))
        evicted += (await post('api/evict', { key, ids, reason })).evicted.length
      return evicted === 0 ? 'There was nobody to evict any more.' : `Evicted: ${counted(evicted, 'ticket')}.`
    },
  })
}

/**
 * Asks before the holders of some keys are evicted.
 * @param {{
 *   asked: readonly { key: string, fence: string | undefined }[],
 *   say: (text: string) => void,
 *   onDone: () => void,
 * }} question
 */
export function askToEvictHolders({ asked, say, onDone }) {
  const held = asked.filter(({ fence }) => fence !== undefined)
  const names = asked.slice(0, SHOWN_KEYS).map(({ key }) => key)
  ask({
    title: `Evict the holders of ${counted(asked.length, 'key')}?`,
    facts: [['Keys', names.join(', ') + (asked.length > SHOWN_KEYS ? ', …' : '')]],
    warning: `${EVICTION} Whoever has taken a key since you selected it keeps it.`,
    reason: REASON,
    typed: 'evict',
    action: 'Evict',
    say,
    async run(reason, tell) {
      let [evicted, gone, done] = [0, asked.length - held.length, 0]
      for (const holders of portionsOf(held)) {
        const part = await post('api/evict', { holders, reason })
        evicted += part.evicted
        gone += part.gone
        done += holders.length
        if (part.message !== undefined)
          throw new Error(`${counted(evicted, 'holder')} evicted. ${part.message}`)
        tell(`${done} of ${counted(held.length, 'key')} …`)
      }
      onDone()
      const missed = gone === 0 ? '' : ` ${counted(gone, 'key')} had no such holder any more.`
      return `Evicted: ${counted(evicted, 'holder')}.${missed}`
    },
  })
}

/** A request takes some kilobytes. */
function portionsOf(items) {
  const portions = []
  let size = LARGEST_PORTION
  for (const item of items) {
    // Longer than its JSON in UTF-8 can be.
    size += encodeURIComponent(JSON.stringify(item)).length
    if (size <= LARGEST_PORTION) portions.at(-1).push(item)
    else {
      portions.push([item])
      size = 0
    }
  }
  return portions
}

/** @param {{ key: string, tickets: readonly (HolderJson | WaiterJson)[], count: number | undefined }} asked */
function factsOf({ key, tickets, count }) {
  /** @type {[string, string][]} */
  const facts = [['Key', key]]
  if (count !== undefined) facts.push(['Holders and waiters', amountOf(tickets.length, count)])
  for (const ticket of count === undefined ? tickets : []) {
    if ('fence' in ticket) facts.push(['Holder', ownerText(ticket.owner)], ['Fence', ticket.fence])
    else facts.push(['Waiter', ownerText(ticket.owner)])
  }
  return facts
}

/** The page of a key shows the first of very many. */
function amountOf(shown, all) {
  return shown === all ? String(all) : `the ${shown} that are shown, of ${all.toLocaleString('en')}`
}

const SHOWN_KEYS = 20
const LARGEST_PORTION = 10_000
const REASON = 'Reason, which the holder is told'
const EVICTION =
  'The key goes to whoever is next at once. The holder is told, but it may be in the middle of a write: only a check of its fence stops that.'
