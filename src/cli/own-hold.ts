import { UNLIMITED } from '../contract/index.ts'
import type { Locks } from '../index.ts'
import { outerHolds } from './outer-holds.ts'
import { findRoom } from './room.ts'
import type { HoldShape, TakePlan } from './take-plan.ts'

/**
 * Whether this process runs, directly or not, under other calls of `holdfast run` that hold the same key and leave no room for
 * this hold. Then the two would wait for each other for ever.
 */
export async function waitsForItself(locks: Locks, { key, shape }: TakePlan): Promise<boolean> {
  const ids = outerHolds().flatMap((hold) => (hold.key === key ? [hold.id] : []))
  if (ids.length === 0) return false
  // A hold in the environment may be over, or belong to another store.
  const room = await findRoom(locks, key).catch(() => undefined)
  const { units, limit } = shareOf(shape)
  let together = units
  let most = limit
  for (const outer of room?.holders ?? []) {
    if (!ids.includes(outer.id)) continue
    together += outer.units
    most = Math.min(most, outer.limit)
  }
  return together > most && together > units
}

function shareOf(shape: HoldShape): { readonly units: number; readonly limit: number } {
  switch (shape.tag) {
    case 'exclusive':
      return { units: 1, limit: 1 }
    case 'shared':
      return { units: 1, limit: UNLIMITED }
    case 'permits':
      return { units: shape.units, limit: shape.permits }
    default:
      return shape satisfies never
  }
}
