import { expected, parseCount } from '../base/arguments.ts'
import { type Duration, parseDuration, WAIT_RANGE } from '../base/duration.ts'
import { factOf, withFacts } from '../base/owner.ts'
import type { WaiterView } from '../contract/store.ts'
import type { LocksContext } from './hold.ts'
import { roomOf } from './inspected.ts'

/** Who may lead instead of whom. The store knows nothing of it: it admits in order of arrival, as always. */
export interface Preference {
  readonly priority: number
  /** How long a candidate of a higher priority has to wait before the leader gives way to it. */
  readonly yieldAfterMs: number
}

/** `undefined`: the campaign names no priority, so it gives way to nobody, and needs no requests for that. */
export function parsePreference({
  priority,
  yieldAfter,
}: {
  readonly priority: number | undefined
  readonly yieldAfter: Duration | undefined
}): Preference | undefined {
  if (priority === undefined) {
    if (yieldAfter === undefined) return undefined
    throw expected('yieldAfter', 'left out without `priority`', yieldAfter)
  }
  return {
    priority: parseCount('priority', priority, { least: -HIGHEST_PRIORITY, most: HIGHEST_PRIORITY }),
    yieldAfterMs: parseDuration('yieldAfter', yieldAfter ?? '5s', WAIT_RANGE),
  }
}

/** A campaign as its tickets tell of it. */
export interface CampaignFacts {
  /** The id of the campaign. */
  readonly candidate: string
  readonly value: string | undefined
  readonly priority: number | undefined
  /** Whether its last term ended because somebody wanted that. Then its priority does not count before it has led again. */
  readonly hasSteppedDown: boolean
}

/** The ticket of a campaign that waits. */
export interface Contender {
  readonly ticket: string
  readonly candidate: string
  readonly priority: number
  /** The priority as it counts now. The highest one leads next. */
  readonly rank: number
  readonly waitedMs: number
}

export function ownerOfCampaign(owner: string, facts: CampaignFacts): string {
  const { candidate, value, priority, hasSteppedDown } = facts
  return withFacts(owner, { value, candidate, priority, steppedDown: hasSteppedDown || undefined })
}

/** The id of the campaign that a ticket belongs to. A plain lock on the key has none. */
export function campaignOf({ owner }: { readonly owner: string }): string | undefined {
  const candidate = factOf(owner, 'candidate')
  return typeof candidate === 'string' ? candidate : undefined
}

/** The campaigns that wait, in the order of the queue. */
export function contendersIn(queue: readonly WaiterView[]): readonly Contender[] {
  return queue.flatMap((waiter) => {
    const { id, owner, waitedMs } = waiter
    const candidate = campaignOf(waiter)
    if (candidate === undefined) return []
    const told = factOf(owner, 'priority')
    const priority = typeof told === 'number' && Number.isSafeInteger(told) ? told : UNSAID
    const rank = factOf(owner, 'steppedDown') === true ? Number.NEGATIVE_INFINITY : priority
    return [{ ticket: id, candidate, priority, rank, waitedMs }]
  })
}

/** The highest rank, and the one that waits for longest among equals. */
export function bestOf(contenders: readonly Contender[]): Contender | undefined {
  const highest = Math.max(...contenders.map(({ rank }) => rank))
  return contenders.find(({ rank }) => rank === highest)
}

/** In how long the leader has to give way, if nothing changes. 0: now. Infinity: nobody is better than the leader. */
export function yieldsInMs(contenders: readonly Contender[], { priority, yieldAfterMs }: Preference): number {
  const better = contenders.filter(({ rank }) => rank > priority)
  return Math.max(0, Math.min(...better.map(({ waitedMs }) => yieldAfterMs - waitedMs)))
}

export async function contendersFor(
  { engine }: LocksContext,
  key: string,
  limitMs?: number,
): Promise<readonly Contender[]> {
  return contendersIn((await roomOf(engine, key, limitMs === undefined ? {} : { limitMs }))?.queue ?? [])
}

/**
 * Has the campaigns join the queue again, one after the other, so they keep their order behind those that stay. Only the leader may
 * call it: `limitMs` throws when the key is not held any more, and returns how long a request may take. 0: it is too late to go on.
 * If a request arrives later than that, the campaign may lead by then, and is left alone.
 */
export async function sendBack(
  { engine }: LocksContext,
  key: string,
  { contenders, limitMs }: { readonly contenders: readonly Contender[]; readonly limitMs: () => number },
): Promise<void> {
  for (const { ticket } of contenders) {
    const leftMs = limitMs()
    if (leftMs <= 0) return
    const request = { key, id: ticket, reason: GIVES_WAY, onlyIfWaiting: true }
    await engine.ask('evict', () => engine.store.evict(request), { limitMs: leftMs, key })
  }
}

/** Why a campaign is sent back, as it reads it. */
export const GIVES_WAY = 'it gives way to another candidate'
/** The priority of a campaign that names none. */
export const UNSAID = 0
const HIGHEST_PRIORITY = 1_000_000
