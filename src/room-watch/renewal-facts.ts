import type { InspectedHolder } from '../index.ts'

/** What looks can tell about the ttl of a holder. The store does not say it. */
export interface RenewalFacts {
  /** The ttl where it is known, otherwise the least that it can be. */
  readonly ttlMs: number
  readonly isKnown: boolean
  /** The age and the time left in the last look. */
  readonly heldMs: number
  readonly remainingMs: number
  /** The bounds of the ttl: there was never more time left, and never less time from the beginning to the end. */
  readonly leastMs: number
  readonly mostMs: number
}

export function renewalFacts(
  { heldMs, remainingMs }: InspectedHolder,
  before: RenewalFacts | undefined,
): RenewalFacts {
  // More time left than in the last look: it was renewed just now.
  const isRenewed = before !== undefined && remainingMs > before.remainingMs
  const boundMs = remainingMs + (isRenewed ? heldMs - before.heldMs : heldMs)
  // An `extend` has changed the ttl: what this look shows contradicts the bounds so far.
  const isChanged =
    before !== undefined &&
    (remainingMs > before.mostMs + TOLERANCE_MS || boundMs < before.leastMs - TOLERANCE_MS)
  const known = isChanged ? undefined : before
  const leastMs = Math.max(remainingMs, known?.leastMs ?? 0)
  // A process may renew a hold early, together with others, so the age alone does not tell whether it was renewed.
  const mostMs = isChanged
    ? boundMs
    : Math.min(heldMs + remainingMs, known?.mostMs ?? Number.POSITIVE_INFINITY)
  const isClose = mostMs - leastMs <= Math.min(leastMs / 3, Math.max(1000, leastMs / 20))
  return {
    ttlMs: isClose ? (wholeSecondIn(leastMs, mostMs) ?? mostMs) : leastMs,
    isKnown: isClose || isRenewed || known?.isKnown === true,
    heldMs,
    remainingMs,
    leastMs,
    mostMs,
  }
}

/** How much the times of two looks may differ although the ttl is the same. */
const TOLERANCE_MS = 1000

/** People mostly write whole seconds. The last one in the bounds, as a new hold is seen with all of its ttl. */
function wholeSecondIn(leastMs: number, mostMs: number): number | undefined {
  const wholeMs = Math.floor(mostMs / 1000) * 1000
  return wholeMs >= leastMs && wholeMs > 0 ? wholeMs : undefined
}

/**
 * For how long a holder has not renewed; `undefined` while it is not late. A living holder renews at about a third of its ttl,
 * and repeats a renewal that gets no answer, so less than half of the ttl is left only if none has arrived.
 */
export function lateMsOf(
  { state, remainingMs }: Pick<InspectedHolder, 'state' | 'remainingMs'>,
  facts: RenewalFacts | undefined,
): number | undefined {
  const isLate = state === 'held' && facts !== undefined && remainingMs < facts.ttlMs / 2
  return isLate ? facts.ttlMs - remainingMs : undefined
}

/** The ttl as people have written it: what looks see of it is off by less than a second. */
export function roundTtlMs(ttlMs: number): number {
  return ttlMs < 2000 ? Math.round(ttlMs / 100) * 100 : Math.ceil((ttlMs - 100) / 1000) * 1000
}
