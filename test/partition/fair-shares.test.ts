import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type Claimant, fairShares } from '../../src/partition/fair-shares.ts'
import { claimantOf, memberValue } from '../../src/partition/member-value.ts'

type Fleet = readonly Claimant[]
const KEYS = 100

const member = (id: string, claims: readonly number[] = [], weight = 1): Claimant => ({
  ...{ id, weight, claims },
  overdue: [],
})
/** Each member claims its share, as it does after it has computed it. */
const settled = (fleet: Fleet, keyCount = KEYS): Fleet => {
  const shares = fairShares(keyCount, fleet)
  return fleet.map((one) => ({ ...one, claims: shares.get(one.id) ?? [] }))
}
const sizes = (fleet: Fleet) => fleet.map(({ claims }) => claims.length)
/** How many keys have another member than before. */
const moved = (before: Fleet, after: Fleet) => {
  const ownerIn = (fleet: Fleet, key: number) => fleet.find(({ claims }) => claims.includes(key))?.id
  return Array.from({ length: KEYS }, (_, key) => key).filter(
    (key) => ownerIn(before, key) !== ownerIn(after, key),
  ).length
}

const weights = fc.oneof(
  fc.constant(1),
  fc.integer({ min: 0, max: 5 }),
  fc.double({ min: 0, max: 3, noNaN: true }),
)
const claims = fc.uniqueArray(fc.nat({ max: KEYS - 1 }))
const fleets = fc
  .array(fc.record({ weight: weights, claims }), { minLength: 1, maxLength: 12 })
  .map((members): Fleet => members.map((one, at) => ({ ...one, id: `m${at}`, overdue: [] })))
/** Of some keys the work is overdue at some members. */
const sickFleets = fc
  .tuple(fleets, fc.array(fc.tuple(fc.nat({ max: KEYS - 1 }), fc.nat({ max: 11 })), { maxLength: 8 }))
  .map(([fleet, sick]): Fleet => {
    const overdueAt = (at: number) => sick.filter(([, who]) => who === at).map(([key]) => key)
    return fleet.map((one, at) => {
      const overdue = [...new Set(overdueAt(at))]
      return { ...one, overdue, claims: one.claims.filter((key) => !overdue.includes(key)) }
    })
  })

test('a key has one member, and each member its exact share, rounded down or up', () => {
  fc.assert(
    fc.property(fleets, (fleet) => {
      const shares = settled(fleet)
      const total = fleet.reduce((sum, { weight }) => sum + weight, 0)
      const dealt = shares.flatMap(({ claims }) => claims)
      expect(new Set(dealt).size).toBe(dealt.length)
      expect(dealt.length).toBe(total === 0 ? 0 : KEYS)
      for (const { weight, claims } of shares) {
        if (total > 0) expect(Math.abs(claims.length - (KEYS * weight) / total)).toBeLessThan(1.000001)
      }
    }),
    { numRuns: 1000 },
  )
})

test('no member gives away a key and gets another for it', () => {
  fc.assert(
    fc.property(fleets, (fleet) => {
      // Claims that overlap are those of members that saw different groups.
      const before = settled(fleet)
      const after = settled(before.map((one, at) => (at === 0 ? { ...one, weight: 2 } : one)))
      for (const [at, { claims }] of before.entries()) {
        const now = new Set(after[at]?.claims)
        const kept = claims.filter((key) => now.has(key)).length
        expect(kept).toBe(Math.min(claims.length, now.size))
      }
    }),
  )
})

test('in whichever order the members claim their shares, each computes the same shares all the time', () => {
  fc.assert(
    fc.property(fc.oneof(fleets, sickFleets), fc.infiniteStream(fc.nat()), (fleet, picks) => {
      // A group that was settled, and that a member then joins, leaves, or has another weight in.
      const [first, ...others] = settled(fleet)
      const changed: Fleet = [...others, member('new'), { ...(first ?? member('m0')), weight: 1 }]
      const goal = fairShares(KEYS, changed)
      let now = [...changed]
      for (let left = [...changed]; left.length > 0; ) {
        const [next] = left.splice((picks.next().value ?? 0) % left.length, 1)
        now = now.map((one) => (one === next ? { ...one, claims: goal.get(one.id) ?? [] } : one))
        expect(fairShares(KEYS, now)).toEqual(goal)
      }
    }),
    { numRuns: 500 },
  )
})

test('a key that is overdue at a member goes to one that can have it, and only such a key has no member', () => {
  fc.assert(
    fc.property(sickFleets, (fleet) => {
      const shares = settled(fleet)
      const dealt = shares.flatMap(({ claims }) => claims)
      expect(new Set(dealt).size).toBe(dealt.length)
      expect(shares.some(({ claims, overdue }) => claims.some((key) => overdue.includes(key)))).toBe(false)
      const canHave = (key: number) => fleet.some((one) => one.weight > 0 && !one.overdue.includes(key))
      const able = Array.from({ length: KEYS }, (_, key) => key).filter(canHave)
      expect(dealt.toSorted((a, b) => a - b)).toEqual(able)
      expect(settled(shares)).toEqual(shares)
    }),
    { numRuns: 500 },
  )
})

test('a key that becomes overdue moves alone, and one key moves when its work has ended', () => {
  const before = settled([member('a'), member('b'), member('c'), member('d')])
  const [a = member('a'), ...others] = before
  const lacking = { ...a, claims: a.claims.slice(1), overdue: a.claims.slice(0, 1) }
  const sick = settled([lacking, ...others])
  expect(moved(before, sick)).toBe(1)
  const well = settled(sick.map((one) => ({ ...one, overdue: [] })))
  expect(moved(sick, well)).toBe(1)
  expect(sizes(well)).toEqual([25, 25, 25, 25])
})

test('a rolling deploy of five processes moves as few keys as can be', () => {
  let fleet = settled(['a', 'b', 'c', 'd', 'e'].map((id) => member(id)))
  expect(sizes(fleet)).toEqual([20, 20, 20, 20, 20])
  let moves = 0
  for (const [at, id] of ['v', 'w', 'x', 'y', 'z'].entries()) {
    const without = settled(fleet.filter((_, index) => index !== 0))
    moves += moved(fleet, without)
    fleet = settled([...without, member(id)])
    moves += moved(without, fleet)
    expect(sizes(fleet), `after ${at + 1}`).toEqual([20, 20, 20, 20, 20])
  }
  // A process that leaves gives its 20 keys away, and a process that comes gets 20.
  expect(moves).toBe(5 * 40)
})

test('weights divide the keys, and a weight of 0 gets none', () => {
  const fleet = settled([member('a', [], 1), member('b', [], 2), member('c', [], 0)])
  expect(sizes(fleet)).toEqual([33, 67, 0])
  const leaving = settled(fleet.map((one) => (one.id === 'b' ? { ...one, weight: 0 } : one)))
  expect(sizes(leaving)).toEqual([100, 0, 0])
})

test('more members than keys: as many have one as there are keys, and keep it', () => {
  const before = settled(
    ['b', 'c', 'd'].map((id) => member(id)),
    2,
  )
  expect(sizes(before)).toEqual([1, 1, 0])
  const after = settled([member('a'), ...before], 2)
  expect(sizes(after)).toEqual([0, 1, 1, 0])
})

test('a member tells its weight and its keys, and what another program wrote gets no keys', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.nat({ max: 4095 })),
      fc.double({ min: 0, max: 1000, noNaN: true }),
      (keys, weight) => {
        const told = { weight, claims: keys.toSorted((a, b) => a - b), overdue: keys.slice(0, 50) }
        const value = memberValue(told)
        expect(value.length).toBeLessThanOrEqual(1000)
        expect(claimantOf({ id: 'm', value, owner: {} })).toEqual({ id: 'm', ...told, weight: weight || 0 })
      },
    ),
  )
  const nothing = { id: 'm', weight: 0, claims: [], overdue: [] }
  for (const value of [
    undefined,
    '',
    'null',
    '[]',
    '{"weight":-1,"keys":""}',
    '{"weight":1}',
    '{"weight":1,"keys":"","overdue":["1"]}',
    '{"weight":1e9,"keys":""}',
  ]) {
    expect(claimantOf({ id: 'm', value, owner: {} })).toEqual(nothing)
  }
  expect(
    claimantOf({ id: 'm', value: `{"weight":1,"keys":"${'_'.repeat(900)}"}`, owner: {} }).claims,
  ).toHaveLength(4096)
  // More than the value has room for: the member takes no keys.
  const hung = memberValue({ weight: 1, claims: [1], overdue: Array.from({ length: 51 }, (_, at) => at) })
  expect(claimantOf({ id: 'm', value: hung, owner: {} })).toMatchObject({ weight: 0, overdue: [] })
})
