import type { OpenAdapter } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

/** So many waiters on one key, which then hold it one after the other: µs of processor per hand-over. */
export function queueLength(name: string, open: OpenAdapter, waiters: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const rounds = Math.ceil((quick ? 20_000 : 200_000) / waiters)
      let used = 0
      for (let round = 0; round < rounds; round += 1) {
        const first = await adapter.acquire('queue')
        const waiting = Array.from({ length: waiters }, () => adapter.acquire('queue'))
        const before = process.cpuUsage()
        await first()
        for (const release of waiting) await (await release)()
        const { user, system } = process.cpuUsage(before)
        used += user + system
      }
      await adapter.close()
      return [used / (rounds * waiters)]
    },
  }
}

/**
 * The same on a server: µs per hand-over, for the first thousands of them. The rest of a long queue is left to the end of the
 * process.
 */
export function remoteQueueLength(name: string, open: OpenAdapter, waiters: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const handOvers = quick ? 1000 : 5000
      let left = handOvers
      let tookMs = 0
      while (left > 0) {
        const count = Math.min(left, waiters)
        const first = await adapter.acquire('queue')
        const waiting = Array.from({ length: waiters }, () => adapter.acquire('queue'))
        // The server answers in order: when this is answered, all of them wait.
        await (await adapter.acquire('behind'))()
        const startedAt = performance.now()
        await first()
        for (const release of waiting.slice(0, count)) await (await release)()
        tookMs += performance.now() - startedAt
        left -= count
      }
      return [(tookMs / handOvers) * 1000]
    },
  }
}
