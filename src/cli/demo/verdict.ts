import { apply, EMPTY, type RegisterEntry } from './register.ts'

/** What the record of a run shows, independent of the library's own state. */
export interface DemoVerdict {
  readonly holds: number
  readonly writes: number
  /** Writes with a stale fence, which changed nothing. */
  readonly refused: number
  /** Two tickets held the key at the same instant. */
  readonly doubleHolders: number
  /** Accepted writes that did not see the accepted write before them. */
  readonly lostUpdates: number
  /** A later holder got a fence that is not higher. */
  readonly fencesOutOfOrder: number
}

export function broken({ doubleHolders, lostUpdates, fencesOutOfOrder }: DemoVerdict): boolean {
  return doubleHolders + lostUpdates + fencesOutOfOrder > 0
}

export function judge(entries: readonly RegisterEntry[]): DemoVerdict {
  return { ...judgeRegister(entries), ...judgeHolds(holdsOf(entries)) }
}

/** Needs no clock: the writer of a write that counts must have read the value of the write before it. */
function judgeRegister(
  entries: readonly RegisterEntry[],
): Pick<DemoVerdict, 'writes' | 'refused' | 'lostUpdates'> {
  let fold = EMPTY
  let writes = 0
  let refused = 0
  let lostUpdates = 0
  for (const entry of entries) {
    const after = apply(fold, entry)
    if (entry.what === 'write') {
      if (!after.accepted) refused += 1
      else {
        writes += 1
        if (entry.base !== fold.value) lostUpdates += 1
      }
    }
    fold = after.fold
  }
  return { writes, refused, lostUpdates }
}

/** The span in which a ticket is known to have held the key. The real hold was at least as long. */
interface HeldSpan {
  readonly fence: bigint
  readonly fromUs: number
  toUs: number
}

/**
 * Each instant was read before the lease was found held. So the key was held at that instant, however long the process was
 * stopped after it.
 */
function holdsOf(entries: readonly RegisterEntry[]): HeldSpan[] {
  const holds = new Map<string, HeldSpan>()
  for (const { ticket, fence, heldAtUs } of entries) {
    if (heldAtUs === null) continue
    const hold = holds.get(ticket)
    if (hold === undefined) holds.set(ticket, { fence: BigInt(fence), fromUs: heldAtUs, toUs: heldAtUs })
    else hold.toUs = Math.max(hold.toUs, heldAtUs)
  }
  return [...holds.values()].sort((one, other) => one.fromUs - other.fromUs)
}

function judgeHolds(
  holds: readonly HeldSpan[],
): Pick<DemoVerdict, 'holds' | 'doubleHolders' | 'fencesOutOfOrder'> {
  let doubleHolders = 0
  let fencesOutOfOrder = 0
  let latestUs = Number.NEGATIVE_INFINITY
  let highest = 0n
  for (const { fence, fromUs, toUs } of holds) {
    if (fromUs < latestUs) doubleHolders += 1
    if (fence <= highest) fencesOutOfOrder += 1
    latestUs = Math.max(latestUs, toUs)
    highest = fence > highest ? fence : highest
  }
  return { holds: holds.length, doubleHolders, fencesOutOfOrder }
}
