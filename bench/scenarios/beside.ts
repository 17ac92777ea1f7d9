import { setTimeout as sleep } from 'node:timers/promises'
import type { OpenAdapter } from '../adapter.ts'
import { type Candidate, percentile } from '../scenario.ts'

/** Takes and releases another key while so many waiters of this process wait for one: p50 and p99 in µs. */
export function besideWaiters(name: string, open: OpenAdapter, waiters: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const other = await open(surroundings)
      await adapter.acquire('queue')
      for (let count = 0; count < waiters; count += 1) void adapter.acquire('queue')
      // By then all waiters are remembered as groups.
      await sleep(10_000)
      const times: number[] = []
      const end = performance.now() + (quick ? 4000 : 10_000)
      while (performance.now() < end) {
        const from = performance.now()
        await (await other.acquire('other'))()
        times.push(performance.now() - from)
      }
      return [percentile(times, 0.5) * 1000, percentile(times, 0.99) * 1000]
    },
  }
}
