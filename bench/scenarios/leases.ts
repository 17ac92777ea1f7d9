import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setImmediate as breath, setTimeout as sleep } from 'node:timers/promises'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import type { Candidate } from '../scenario.ts'

const TTL_MS = 30_000

/** The work of a process that holds many leases. */
interface Holder {
  take(index: number): Promise<void> | void
  release(index: number): Promise<void> | void
  /** How many renewals were made so far. */
  renewals(): number
  close(): Promise<void> | void
}

/** The baseline: a Map from keys to dates, and a timer that sets some of the dates anew. */
function bareLeases(count: number): Holder {
  const SLICE = 1000
  const leases = new Map<string, { expiresAt: number }>()
  const held: { expiresAt: number }[] = []
  let renewals = 0
  const timer = setInterval(
    () => {
      for (let slice = 0; slice < SLICE; slice += 1) {
        const lease = held[renewals % held.length]
        if (lease === undefined) return
        lease.expiresAt = performance.now() + TTL_MS
        renewals += 1
      }
    },
    TTL_MS / 3 / (count / SLICE),
  )
  return {
    take(index) {
      const lease = { expiresAt: performance.now() + TTL_MS }
      leases.set(`lease:${index}`, lease)
      held.push(lease)
    },
    release: (index) => void leases.delete(`lease:${index}`),
    renewals: () => renewals,
    close: () => clearInterval(timer),
  }
}

function holdfastLeases(count: number): Holder {
  const store = memoryStore()
  let renewals = 0
  const renew = store.renew.bind(store)
  store.renew = (tickets, atMs) => {
    renewals += tickets.length
    return renew(tickets, atMs)
  }
  const locks = createLocks(store, { ttl: TTL_MS })
  const leases = new Array<Awaited<ReturnType<typeof locks.acquire>>>(count)
  return {
    async take(index) {
      leases[index] = await locks.acquire(`lease:${index}`)
    },
    async release(index) {
      if (leases[index]?.state === 'lost') throw new Error('A lease was lost while it was renewed.')
      await leases[index]?.release()
    },
    renewals: () => renewals,
    close: () => locks.close(),
  }
}

/** µs of processor per lease to take, to renew once and to release; the longest stall of the event loop in ms; bytes of heap. */
function leases(name: string, open: (count: number) => Holder, count: number): Candidate {
  return {
    name,
    async measure(_, { quick }) {
      const heapBefore = heap()
      const holder = open(count)
      const loop = watchLoop()
      const take = await cpuWhile(() => inSteps(count, (index) => holder.take(index)))
      const before = holder.renewals()
      const hold = await cpuWhile(() => sleep(TTL_MS * (quick ? 0.4 : 1)))
      const renewals = holder.renewals() - before
      // The collection is not a stall of the candidate's making.
      const stallMs = loop.stop()
      const bytes = (heap() - heapBefore) / count
      const loopAgain = watchLoop()
      const release = await cpuWhile(() => inSteps(count, (index) => holder.release(index)))
      const longest = Math.max(stallMs, loopAgain.stop())
      await holder.close()
      return [take / count, hold / renewals, release / count, longest, bytes]
    },
  }
}

export const manyLeases: readonly (readonly [count: number, candidates: readonly Candidate[]])[] = [
  10_000, 300_000, 1_000_000,
].map((count) => [
  count,
  [leases('a Map of dates', bareLeases, count), leases('holdfast', holdfastLeases, count)],
])

/** A hundred at a time, so that a stall is not of our own making. */
async function inSteps(count: number, step: (index: number) => Promise<void> | void): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    await step(index)
    if (index % 100 === 0) await breath()
  }
}

/** Processor time of this process in µs. */
async function cpuWhile(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}

/** The longest delay of a timer, in ms. The timer is Node.js' own, because one in JavaScript would be a part of what is measured. */
function watchLoop(): { stop(): number } {
  const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delays.enable()
  return {
    stop() {
      delays.disable()
      return Math.max(0, delays.max / 1e6 - RESOLUTION_MS)
    },
  }
}

const RESOLUTION_MS = 5

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}
