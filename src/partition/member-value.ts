import type { GroupMember } from '../index.ts'
import type { Claimant } from './fair-shares.ts'

/** What a member of a partition tells the others, as the value of its membership. The keys are a bit for each, in base64. */
export function memberValue({ weight, claims, overdue }: Omit<Claimant, 'id'>): string {
  // Then it wants no keys until some of its work has ended.
  if (overdue.length > MOST_OVERDUE) return memberValue({ weight: 0, claims, overdue: [] })
  const bits = new Uint8Array(Math.ceil((Math.max(-1, ...claims) + 1) / 8))
  for (const key of claims) bits[key >> 3] = (bits[key >> 3] ?? 0) | (1 << (key & 7))
  const keys = Buffer.from(bits).toString('base64url')
  return JSON.stringify({ weight, keys, overdue: overdue.length === 0 ? undefined : overdue })
}

/** Another program may have written anything. Then the member gets no keys. */
export function claimantOf({ id, value }: GroupMember): Claimant {
  return { id, ...(toldBy(value) ?? { weight: 0, claims: [], overdue: [] }) }
}

/** What a value of a member says; `undefined`: it is none of a partition. */
export function toldBy(value = ''): Omit<Claimant, 'id'> | undefined {
  try {
    const { weight, keys, overdue = [] } = JSON.parse(value) as Readonly<Record<string, unknown>>
    if (isWeight(weight) && typeof keys === 'string' && isPlaces(overdue)) {
      return { weight, claims: numbersIn(keys), overdue }
    }
  } catch {
    // No JSON.
  }
  return undefined
}

export function isWeight(weight: unknown): weight is number {
  return typeof weight === 'number' && weight >= 0 && weight <= MOST_WEIGHT
}

export const MOST_WEIGHT = 1_000_000

/** A bit for each takes less than the 1,000 characters of a member's value. */
export const MOST_KEYS = 4096

/** With this many, the value is still short enough. A member with more of them takes no keys. */
const MOST_OVERDUE = 50

function isPlaces(overdue: unknown): overdue is number[] {
  return Array.isArray(overdue) && overdue.every((key) => Number.isInteger(key) && key >= 0)
}

function numbersIn(text: string): number[] {
  const bits = Buffer.from(text, 'base64url').subarray(0, MOST_KEYS / 8)
  return Array.from({ length: bits.length * 8 }, (_, key) => key).filter(
    (key) => ((bits[key >> 3] ?? 0) & (1 << (key & 7))) !== 0,
  )
}
