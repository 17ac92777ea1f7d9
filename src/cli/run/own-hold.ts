import { type Locks, UNLIMITED } from '../../index.ts'
import { findRoom } from '../room.ts'
import type { HoldShape, RunPlan } from './plan.ts'

/**
 * Whether this process was started, directly or not, by the command of a `holdfast run` that holds the same key and leaves
 * no room for a second hold: then they would wait for each other for ever.
 */
export async function waitsForItself(locks: Locks, { key, shape }: RunPlan): Promise<boolean> {
  const { HOLDFAST_KEY: outerKey, HOLDFAST_ID: outerId } = process.env
  if (outerKey !== key) return false
  // What the environment says may be over, or of another store.
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
