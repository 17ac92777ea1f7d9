import { type HolderView, type RoomView, UNLIMITED, type WaiterView } from '../index.ts'

/** A holder or a waiter, as a look at the store shows it. */
export type TicketView = HolderView | WaiterView

export interface OwnerFacts {
  readonly host: string
  readonly pid: number
  readonly label?: string
}

/** `mutex`, `shared`, or how many permits of how many. */
export function modeOf({ units, limit }: Pick<TicketView, 'units' | 'limit'>): string {
  if (limit === 1) return 'mutex'
  return limit === UNLIMITED ? 'shared' : `${units} of ${limit}`
}

/** `undefined` where a process that is none of ours wrote the text. */
export function ownerFactsOf(owner: string): OwnerFacts | undefined {
  try {
    const { host, pid, label } = JSON.parse(owner) as Partial<Record<keyof OwnerFacts, unknown>>
    if (typeof host !== 'string' || typeof pid !== 'number') return undefined
    return { host, pid, ...(typeof label === 'string' ? { label } : {}) }
  } catch {
    return undefined
  }
}

/** What a leader publishes of itself with `value`. */
export function leaderValueOf(owner: string): string | undefined {
  try {
    const { value } = JSON.parse(owner) as { value?: unknown }
    return typeof value === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

/**
 * The keys that are elections, with how many watch them. A leader holds, besides the key itself, a mark called like it, on which
 * those wait as readers who watch the leadership.
 */
export function electionsIn(rooms: readonly RoomView[]): ReadonlyMap<string, number> {
  const watchers = new Map<string, number>()
  for (const { key, holders, queue } of rooms) {
    if (!key.endsWith(LEADER_MARK)) continue
    const isLed = [...holders, ...queue].some(({ limit }) => limit === 1)
    if (isLed) watchers.set(key.slice(0, -LEADER_MARK.length), queue.length)
  }
  return watchers
}

export const LEADER_MARK = '#leader'
