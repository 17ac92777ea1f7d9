import type { OpenAdapter } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

/** So many calls for one key at once, each releasing at once: total ms, and how many were overtaken by a later call. */
export function crowd(name: string, open: OpenAdapter, waiters: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      await (await adapter.acquire('warm'))()
      const rounds = quick ? 1 : 5
      const order: number[] = []
      const startedAt = performance.now()
      for (let round = 0; round < rounds; round += 1) {
        await Promise.all(
          Array.from({ length: waiters }, async (_, caller) => {
            const release = await adapter.acquire('crowd')
            order.push(round * waiters + caller)
            await release()
          }),
        )
      }
      const tookMs = (performance.now() - startedAt) / rounds
      await adapter.close()
      return [tookMs, overtaken(order) / rounds]
    },
  }
}

/** How many calls were served after a later call. */
function overtaken(order: readonly number[]): number {
  let latest = -1
  let count = 0
  for (const caller of order) {
    if (caller < latest) count += 1
    latest = Math.max(latest, caller)
  }
  return count
}
