import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Candidate } from '../scenario.ts'

const PROCESSES = 4

/** The same work: µs from one hand-over to the next. */
export function betweenProcesses(name: string, adapterName: string): Candidate {
  const { measure } = fairness(name, adapterName)
  return {
    name,
    async measure(surroundings, mode) {
      const [, , perSecond = Number.NaN] = await measure(surroundings, mode)
      return [1_000_000 / perSecond]
    },
  }
}

/**
 * Four processes with 25 loops each that take and release one key. The metrics are Jain's fairness index over the 100
 * loops (1: all got the same, 0.01: one got all), how many loops got nothing, and hand-overs per second.
 */
export function fairness(name: string, adapterName: string): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const durationMs = quick ? 1000 : 5000
      const worker = fileURLToPath(new URL('../fairness-worker.js', import.meta.url))
      // Late enough for four processes to start on one processor.
      const startAt = Date.now() + 4000
      const counts = await Promise.all(
        Array.from({ length: PROCESSES }, () =>
          countsOf(worker, [adapterName, JSON.stringify(surroundings), String(startAt), String(durationMs)]),
        ),
      )
      const all = counts.flat()
      const sum = all.reduce((total, count) => total + count, 0)
      const squares = all.reduce((total, count) => total + count * count, 0)
      return [
        (sum * sum) / (all.length * squares),
        all.filter((count) => count === 0).length,
        (sum / durationMs) * 1000,
      ]
    },
  }
}

function countsOf(worker: string, args: readonly string[]): Promise<number[]> {
  return new Promise((resolve, reject) => {
    const child = fork(worker, args)
    child.once('message', (counts) => resolve(counts as number[]))
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`A worker ended with ${code} before it had counted.`)))
  })
}
