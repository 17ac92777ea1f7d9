import type { OpenAdapter } from '../adapter.ts'
import { type Candidate, percentile } from '../scenario.ts'

/** Asks for a key that another client holds, one try after the other: p50 in µs, and tries per second. */
export function taken(name: string, open: OpenAdapter, tries: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const [holder, other] = [await open(surroundings), await open(surroundings)]
      const { attempt } = other
      if (attempt === undefined) throw new Error(`${name} cannot try a key without waiting for it`)
      const release = await holder.acquire('taken')
      const count = quick ? Math.ceil(tries / 10) : tries
      for (let turn = 0; turn < count / 5; turn += 1) await attempt('taken')
      const times: number[] = []
      const startedAt = performance.now()
      for (let turn = 0; turn < count; turn += 1) {
        const from = performance.now()
        await attempt('taken')
        times.push(performance.now() - from)
      }
      const tookMs = performance.now() - startedAt
      await release()
      await holder.close()
      await other.close()
      return [percentile(times, 0.5) * 1000, (count / tookMs) * 1000]
    },
  }
}
