import { expect } from 'vitest'
import type { Locks } from '../../../src/index.ts'

/** Calls that take one key again and again, until they are stopped. */
export interface Crew {
  /** How many times the key was held so far. */
  readonly turns: number
  /** Ends the work and the locks. Fails if two of the calls held the key at once, or if the fences did not rise. */
  stop(): Promise<void>
}

export function startCrew(
  clients: readonly Locks[],
  { key, callsEach }: { readonly key: string; readonly callsEach: number },
): Crew {
  const fences: bigint[] = []
  let inside = 0
  let stop = false
  const work = async (locks: Locks): Promise<void> => {
    while (!stop) {
      await locks.withLock(key, { wait: '60s' }, async (lease) => {
        inside += 1
        expect(inside).toBe(1)
        fences.push(lease.fence)
        await lease.extend()
        expect(inside).toBe(1)
        inside -= 1
      })
    }
  }
  const atWork = Promise.all(clients.flatMap((locks) => Array.from({ length: callsEach }, () => work(locks))))
  return {
    get turns() {
      return fences.length
    },
    async stop() {
      stop = true
      await atWork
      expect(fences.every((fence, at) => at === 0 || fence > (fences[at - 1] as bigint))).toBe(true)
      for (const locks of clients) await locks.close()
    },
  }
}
