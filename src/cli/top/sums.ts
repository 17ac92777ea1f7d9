import type { InspectedRoom } from '../../index.ts'
import type { Totals } from '../../room-watch/room-history.ts'
import { electionsIn, isPartOf, isVacancy } from '../../room-watch/ticket-facts.ts'

/** The numbers of the header, over all keys. */
export interface Sums {
  readonly keys: number
  readonly held: number
  readonly offered: number
  readonly waiting: number
  readonly longestMs: number | undefined
  /** Per second over the last looks; `undefined` before the second look. A hold between two looks is not counted. */
  readonly handOvers: number | undefined
  /** Holds that ended within the last minute because they were not renewed. */
  readonly expired: number
}

export function sumsOf(rooms: readonly InspectedRoom[], totals: readonly Totals[]): Sums {
  let [held, offered, waiting] = [0, 0, 0]
  let longestMs: number | undefined
  const elections = electionsIn(rooms)
  let keys = 0
  for (const room of rooms) {
    const { key, holders, queue } = room
    // The mark and the vacancy of an election are no keys of their own.
    if (isPartOf(elections, key)) continue
    keys += 1
    if (elections.has(key) && isVacancy(room)) continue
    for (const { state } of holders) {
      if (state === 'held') held += 1
      else if (state === 'offered') offered += 1
    }
    waiting += queue.length
    for (const { waitedMs } of queue) longestMs = Math.max(longestMs ?? 0, waitedMs)
  }
  return { keys, held, offered, waiting, longestMs, ...eventsIn(totals) }
}

function eventsIn(totals: readonly Totals[]): Pick<Sums, 'handOvers' | 'expired'> {
  const now = totals.at(-1)?.at ?? 0
  const recent = totals.filter(({ at }) => at > now - RATE_MS)
  const before = totals[totals.length - recent.length - 1] ?? recent[0]
  const spanMs = now - (before?.at ?? now)
  const counted = before === recent[0] ? recent.slice(1) : recent
  const begun = counted.reduce((sum, look) => sum + look.begun, 0)
  const expired = totals.filter(({ at }) => at > now - MINUTE_MS).reduce((sum, look) => sum + look.expired, 0)
  return { handOvers: spanMs > 0 ? (begun * 1000) / spanMs : undefined, expired }
}

const RATE_MS = 10_000
const MINUTE_MS = 60_000
