import { statistic } from './charts.js'
import { element, setAttribute } from './elements.js'
import { addressOf } from './places.js'
import { clockTime } from './time.js'
/** @import { ViewJson } from '../view-json.ts' */

/** The sums over all keys. Each leads to the list of what it counts. */
export function totalsRow() {
  const keys = statistic('keys', { href: addressOf({ view: 'keys' }) })
  const waiting = statistic('waiting', {
    href: addressOf({ view: 'keys', show: 'contended', sort: 'waiting' }),
  })
  const begun = statistic('hand-overs / min', { href: addressOf({ view: 'contention' }) })
  const expired = statistic('expired', {
    href: addressOf({ view: 'losses', show: 'expired' }),
    tone: 'warn',
  })
  return {
    node: element(
      'section',
      { class: 'totals', 'aria-label': 'Sums over all keys' },
      keys.node,
      waiting.node,
      begun.node,
      expired.node,
    ),
    /** @param {ViewJson} view */
    update({ totals, isCut, history }) {
      const last = totals.at(-1) ?? { keys: 0, waiting: 0 }
      const places = Math.max(LEAST_PLACES, totals.length)
      const show = (of, text, name) =>
        of.update(
          text,
          totals.map((each) => each[name]),
          places,
        )
      show(keys, `${last.keys.toLocaleString('en')}${isCut ? '+' : ''}`, 'keys')
      show(waiting, last.waiting.toLocaleString('en'), 'waiting')
      show(begun, perMinute(totals), 'begun')
      show(expired, history.expired.toLocaleString('en'), 'expired')
      expired.name(history.fromAt === undefined ? 'expired' : `expired since ${clockTime(history.fromAt)}`)
      setAttribute(expired.node, 'data-some', history.expired > 0 ? 'true' : undefined)
    },
  }
}

function perMinute(totals) {
  const last = totals.at(-1)
  const recent = totals.filter(({ at }) => at > last.at - 60_000)
  const [first] = recent
  const spanMs = last === undefined ? 0 : last.at - first.at
  if (spanMs < 3000) return '–'
  const sum = recent.slice(1).reduce((all, { begun }) => all + begun, 0)
  return Math.round((sum / spanMs) * 60_000).toLocaleString('en')
}

/** A line fills its whole width after so many looks. */
export const LEAST_PLACES = 20
