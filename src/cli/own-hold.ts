import { UNLIMITED } from '../contract/index.ts'
import type { Locks } from '../index.ts'
import { findRoom } from './room.ts'
import type { HoldShape, TakePlan } from './take-plan.ts'

/**
 * Whether this process runs, directly or not, under another `holdfast run` that holds the same key and leaves no room for a
 * second hold. Then the two would wait for each other for ever.
 */
export async function waitsForItself(locks: Locks, { key, shape }: TakePlan): Promise<boolean> {
  const { HOLDFAST_KEY: outerKey, HOLDFAST_ID: outerId } = process.env
  if (outerKey !== key) return false
  // The hold in the environment may be over, or belong to another store.
  const room = await findRoom(locks, key).catch(() => undefined)
  const outer = room?.holders.find(({ id }) => id === outerId)
  if (outer === undefined) return false
  const { units, limit } = shareOf(shape)
  return outer.units + units > Math.min(outer.limit, limit)
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
