import { setTimeout as sleep } from 'node:timers/promises'
import type { Locks } from '../index.ts'
import { findRoom } from './room.ts'
import { ownerOf } from './room-text.ts'
import { whereOf } from './store-name.ts'
import type { StorePlace } from './store-option.ts'
import type { TakePlan } from './take-plan.ts'
import { age, json } from './text.ts'

/** Who holds the key that was not free in time, and for how long. */
export async function whyBusy(
  locks: Locks,
  { key, waitMs, place }: Pick<TakePlan, 'key' | 'waitMs'> & { readonly place: StorePlace },
): Promise<string> {
  // Whoever named no store may not know that another user's command cannot hold this key.
  const where = place.isDefault ? ` ${whereOf(place)}` : ''
  const within = waitMs === 0 ? '' : ` and was not free within ${age(waitMs)}`
  // The key was taken when it was asked for. If by now the holder is gone or the store is away, or the look takes too long,
  // the line names no holder, which is good enough for people.
  const finding = findRoom(locks, key).catch(() => undefined)
  const room = await Promise.race([finding, sleep(LOOK_MS, undefined, { ref: false })])
  const [holder, ...others] = room?.holders ?? []
  if (holder === undefined) return `${json(key)} is taken${where}${within}`
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  return `${json(key)} is held by ${ownerOf(holder)}${more} for ${age(holder.heldMs)}${where}${within}`
}

const LOOK_MS = 300
