import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../base/thrown.ts'
import { connect, type Locks } from '../../index.ts'

/**
 * What the store still has of a run. Leases of killed processes end by themselves, so it waits for that. What is left then is
 * removed, and is a finding.
 */
export async function clear(url: string, prefix: string, withinMs: number): Promise<readonly string[]> {
  try {
    await using locks = await connect(url)
    const until = performance.now() + withinMs
    for (;;) {
      const left = await roomsIn(locks, prefix)
      if (left.length === 0) return []
      if (performance.now() < until) await sleep(LOOK_MS)
      else {
        for (const { key } of left) await locks.evictAll(key, { reason: 'the torture is over' })
        return left.map(({ text }) => text)
      }
    }
  } catch (error) {
    return [`the store could not be asked: ${messageOf(error)}`]
  }
}

const LOOK_MS = 250

async function roomsIn(locks: Locks, prefix: string): Promise<{ key: string; text: string }[]> {
  const rooms: { key: string; text: string }[] = []
  for await (const { key, holders, queue } of locks.inspect({ prefix })) {
    rooms.push({ key, text: `${key} has ${holders.length} holders and ${queue.length} waiters` })
  }
  return rooms
}
