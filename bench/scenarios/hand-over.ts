import type { OpenAdapter } from '../adapter.ts'
import { type Candidate, percentile } from '../scenario.ts'

/** From the call of release until the next waiter holds, with 100 waiters: p50 in µs. */
export function handOver(name: string, open: OpenAdapter, handOvers: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const count = quick ? Math.ceil(handOvers / 10) : handOvers
      const times: number[] = []
      let releasedAt: number | undefined
      const waiter = async (): Promise<void> => {
        while (times.length < count) {
          const release = await adapter.acquire('hand-over')
          if (releasedAt !== undefined) times.push(performance.now() - releasedAt)
          // A moment of work, so that the release does not meet the next call on the same connection.
          await new Promise((resolve) => setImmediate(resolve))
          releasedAt = performance.now()
          await release()
        }
      }
      await Promise.all(Array.from({ length: 100 }, waiter))
      await adapter.close()
      return [percentile(times, 0.5) * 1000]
    },
  }
}
