/** What the fair shares depend on: the members, and which keys each of them has claimed. A key is its place in the list. */
export interface Claimant {
  readonly id: string
  readonly weight: number
  readonly claims: readonly number[]
  /** Keys that it cannot have, because its last work on them has not ended in time. */
  readonly overdue: readonly number[]
}

/**
 * Divides the keys `0` to `keyCount - 1` by weight. A member gets its exact share, rounded down or up. It keeps what it has
 * claimed, up to its share, so no division with the same shares moves fewer keys. (Kafka's sticky assignor starts from the same
 * facts, KIP-429, but there one member decides for all.)
 *
 * Each member computes this by itself, from what all members can see. Members that claim their new share at different times
 * do not disturb each other, because the result stays the same:
 *
 * - a member that has claimed its share keeps it;
 * - the keys that are left are dealt in order, each member taking as many as it lacks.
 *
 * A key that is overdue at a member goes to another member, in addition to its share. So no further key has to move for it.
 *
 * Members that saw different groups for a moment may disagree. That is safe, because a key has one holder. They agree again when
 * they have seen the same group.
 */
export function fairShares(
  keyCount: number,
  claimants: readonly Claimant[],
): ReadonlyMap<string, readonly number[]> {
  const members = claimants.toSorted((a, b) => (a.id < b.id ? -1 : 1))
  const holders = holdersOfOverdue(keyCount, members)
  const sizes = shareSizes(keyCount - holders.size, members, holders)
  const taken = new Set<number>(holders.keys())
  const shares = new Map<string, number[]>()
  for (const { id, claims } of members) {
    const size = sizes.get(id) ?? 0
    const kept = claims.filter((key) => key < keyCount && !taken.has(key)).slice(0, size)
    for (const key of kept) taken.add(key)
    shares.set(id, kept)
  }
  let next = 0
  for (const [id, share] of shares) {
    for (const size = sizes.get(id) ?? 0; share.length < size; next += 1) {
      if (!taken.has(next)) share.push(next)
    }
    for (const [key, holder] of holders) if (holder === id) share.push(key)
    share.sort((a, b) => a - b)
  }
  return shares
}

/**
 * Who gets each key that is overdue at a member: the member that claims it, or else one that can have it. `undefined`: none can.
 * The answer depends on no other key, so it stays the same while the members claim their shares.
 */
function holdersOfOverdue(
  keyCount: number,
  members: readonly Claimant[],
): ReadonlyMap<number, string | undefined> {
  const keys = new Set(members.flatMap(({ overdue }) => overdue).filter((key) => key < keyCount))
  const holders = new Map<number, string | undefined>()
  for (const key of keys) {
    const able = members.filter(({ weight, overdue }) => weight > 0 && !overdue.includes(key))
    const holder = able.find(({ claims }) => claims.includes(key)) ?? able[key % able.length]
    holders.set(key, holder?.id)
  }
  return holders
}

/** How many of the other keys each member gets. All are given out, unless the weights are all 0. */
function shareSizes(
  keyCount: number,
  members: readonly Claimant[],
  overdue: ReadonlyMap<number, unknown>,
): ReadonlyMap<string, number> {
  const total = members.reduce((sum, { weight }) => sum + weight, 0)
  if (total === 0) return new Map()
  const exact = members.map(({ id, weight, claims }) => {
    const share = (keyCount * weight) / total
    const size = Math.floor(share)
    const claimed = claims.filter((key) => !overdue.has(key)).length
    return { id, size, fraction: share - size, wantsMore: claimed > size }
  })
  const left = keyCount - exact.reduce((sum, { size }) => sum + size, 0)
  // A member that has one key more than its share rounded down keeps it rather than another member gets it.
  const inOrder = exact
    .filter(({ fraction }) => fraction > 0)
    .sort((a, b) => Number(b.wantsMore) - Number(a.wantsMore) || b.fraction - a.fraction)
  const roundedUp = new Set(inOrder.slice(0, left).map(({ id }) => id))
  return new Map(exact.map(({ id, size }) => [id, size + (roundedUp.has(id) ? 1 : 0)]))
}
