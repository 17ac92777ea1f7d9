import type { OpenAdapter } from '../adapter.ts'
import { type Candidate, percentile } from '../scenario.ts'

/** Takes and releases one free key, one after the other: p50 in µs, and cycles per second. */
export function cycle(name: string, open: OpenAdapter, cycles: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const count = quick ? Math.ceil(cycles / 10) : cycles
      for (let turn = 0; turn < count / 5; turn += 1) await (await adapter.acquire('cycle'))()
      const times: number[] = []
      const startedAt = performance.now()
      for (let turn = 0; turn < count; turn += 1) {
        const from = performance.now()
        const release = await adapter.acquire('cycle')
        await release()
        times.push(performance.now() - from)
      }
      const tookMs = performance.now() - startedAt
      await adapter.close()
      return [percentile(times, 0.5) * 1000, (count / tookMs) * 1000]
    },
  }
}

/** The same in the first second of the process, the connection included: most services take few locks, with cold code. */
export function coldCycle(name: string, open: OpenAdapter): Candidate {
  return {
    name,
    async measure(surroundings) {
      const adapter = await open(surroundings)
      const times: number[] = []
      const startedAt = performance.now()
      while (performance.now() - startedAt < 1000) {
        const from = performance.now()
        await (await adapter.acquire('cold'))()
        times.push(performance.now() - from)
      }
      const tookMs = performance.now() - startedAt
      await adapter.close()
      return [percentile(times, 0.5) * 1000, (times.length / tookMs) * 1000]
    },
  }
}

/** The same without reading the clock for each cycle, for cycles shorter than such a reading: cycles per second. */
export function tightCycle(name: string, open: OpenAdapter, cycles: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const count = quick ? Math.ceil(cycles / 10) : cycles
      for (let turn = 0; turn < count / 5; turn += 1) await (await adapter.acquire('cycle'))()
      const startedAt = performance.now()
      for (let turn = 0; turn < count; turn += 1) {
        const release = await adapter.acquire('cycle')
        await release()
      }
      const tookMs = performance.now() - startedAt
      await adapter.close()
      return [(count / tookMs) * 1000]
    },
  }
}
