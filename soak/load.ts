/**
 * One process of the soak: uses each kind of lock at a steady pace until the parent disconnects. Started by `run.ts`, with
 * the store's URL. On each message of the parent it answers with a {@link ProcessSample}.
 */
import { setMaxListeners } from 'node:events'
import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'
import { setTimeout as pause } from 'node:timers/promises'
import { connect, isHoldfastError, type Lease, type Locks } from '../src/index.ts'
import type { ProcessSample } from './sample.ts'

// Ctrl-C reaches every process of the terminal. The parent decides when this one ends.
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => {})

const [url = ''] = process.argv.slice(2)
const over = new AbortController()
// A listener for each loop and each pause.
setMaxListeners(0, over.signal)
const freeKey: RecordableHistogram = createHistogram()
const busyKey: RecordableHistogram = createHistogram()
const unexpected: Record<string, number> = {}
let cycles = 0
let lost = 0
let keys = 0

const locks: Locks = await connect(url, { ttl: '10s', wait: '1m' })
locks.on('lost', () => {
  lost += 1
})
process.on('message', () => process.send?.(sample()))
process.once('disconnect', () => over.abort())

await Promise.all([
  ...Array.from({ length: 4 }, () => repeat(takeTurns, { everyMs: 50 })),
  repeat(takeFreshKey, { everyMs: 20 }),
  repeat(readOrWrite, { everyMs: 50 }),
  repeat(takePermit, { everyMs: 50 }),
  repeat(takeSeveral, { everyMs: 100 }),
  repeat(lead, { everyMs: 100 }),
  repeat(holdLong, { everyMs: 100 }),
  repeat(abort, { everyMs: 100 }),
  repeat(waitInVain, { everyMs: 100 }),
])
await locks.close()

/** Several loops of each process want the same key: its tickets queue up and are handed over. */
async function takeTurns(): Promise<void> {
  await use(await timed(busyKey, () => locks.acquire('turns')))
}

/** Nobody uses the key again: what the store and the process keep of it is a leak. */
async function takeFreshKey(): Promise<void> {
  keys += 1
  await use(await timed(freeKey, () => locks.acquire(`fresh:${process.pid}:${keys}`)))
}

async function readOrWrite(): Promise<void> {
  const document = locks.readWrite('document')
  await use(keys % 4 === 0 ? await document.acquireWrite() : await document.acquireRead())
}

async function takePermit(): Promise<void> {
  await use(await locks.semaphore('permits', 2).acquire())
}

async function takeSeveral(): Promise<void> {
  const set = await locks.acquireAll(['several:a', 'several:b', 'several:c'])
  await set.release()
}

/** Leads for 200 ms. The leadership goes from process to process, as the others campaign meanwhile. */
async function lead(): Promise<void> {
  await locks.election('leader').campaign({ signal: over.signal }, async () => {
    await pause(200)
  })
}

/** A lease that lives by its renewals: 20 s are twice its ttl. */
async function holdLong(): Promise<void> {
  const lease = await locks.acquire(`long:${process.pid}`)
  await pause(20_000, undefined, { signal: AbortSignal.any([over.signal, lease.signal]) }).catch(() => {})
  await lease.release()
}

/** The key is held by another loop of this process nearly all the time. */
async function abort(): Promise<void> {
  const key = `long:${process.pid}`
  try {
    await use(await locks.acquire(key, { signal: AbortSignal.timeout(5) }))
  } catch (error) {
    if ((error as Error).name !== 'TimeoutError') throw error
  }
}

async function waitInVain(): Promise<void> {
  try {
    await use(await locks.acquire(`long:${process.pid}`, { wait: '5s' }))
  } catch (error) {
    if (!isHoldfastError(error, 'acquire-timeout')) throw error
  }
}

async function use(lease: Lease): Promise<void> {
  try {
    await pause(1)
  } finally {
    await lease.release()
  }
}

async function timed<T>(latency: RecordableHistogram, work: () => Promise<T>): Promise<T> {
  const startedAt = process.hrtime.bigint()
  const result = await work()
  latency.record(Number(process.hrtime.bigint() - startedAt))
  return result
}

async function repeat(work: () => Promise<void>, { everyMs }: { readonly everyMs: number }): Promise<void> {
  while (!over.signal.aborted) {
    // The two processes must not fall into step.
    await pause(everyMs * (0.5 + Math.random()), undefined, { signal: over.signal }).catch(() => {})
    try {
      await work()
      cycles += 1
    } catch (error) {
      if (over.signal.aborted) return
      const name = isHoldfastError(error) ? error.code : (error as Error).name
      if (unexpected[name] === undefined) console.error(`${url}: the first ${name}:`, error)
      unexpected[name] = (unexpected[name] ?? 0) + 1
    }
  }
}

/** What this process uses now, and what it has done since the sample before. */
function sample(): ProcessSample {
  globalThis.gc?.()
  const { rss, heapUsed, external } = process.memoryUsage()
  const taken: ProcessSample = {
    rssBytes: rss,
    heapBytes: heapUsed,
    externalBytes: external,
    handles: process.getActiveResourcesInfo().length,
    cycles,
    lost,
    errors: { ...unexpected },
    freeKey: percentilesOf(freeKey),
    busyKey: percentilesOf(busyKey),
  }
  freeKey.reset()
  busyKey.reset()
  return taken
}

function percentilesOf(latency: RecordableHistogram): ProcessSample['freeKey'] {
  const milliseconds = (share: number): number => latency.percentile(share) / 1e6
  return { p50Ms: milliseconds(50), p99Ms: milliseconds(99), mostMs: latency.max / 1e6 }
}
