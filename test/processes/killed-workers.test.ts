import { type ChildProcess, fork } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { shortestMs } from '../base/measured.ts'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const PROGRAM = await bundled(new URL('killed-workers-process.ts', import.meta.url))
const TTL_MS = 2000
const WORKERS = 5
const KILLS = 5
const KILL_EVERY_MS = 1100
/** Several tries on a busy machine. */
const TRIES = { timeout: 600_000 }
/**
 * How long a crashed holder may hold up the key: for its ttl. On etcd it is a fifth more, two seconds, and the second
 * in which etcd notices.
 */
const CRASH_MS: Readonly<Record<string, number>> = { etcd: 1.2 * TTL_MS + 3000 }

for (const store of Object.keys(places)) {
  test(
    `${store}: workers that are killed one after the other leave a wanted key free for a lease and one offer at most`,
    TRIES,
    async () => {
      // An offer that no worker confirms lasts for the ttl, if that is shorter than three seconds.
      const limitMs = (CRASH_MS[store] ?? TTL_MS) + TTL_MS + 1500
      expect(await shortestMs(limitMs, () => longestPauseMs(store))).toBeLessThan(limitMs)
    },
  )
}

/** How long nobody works at the longest while {@link KILLS} workers are killed one after the other. */
async function longestPauseMs(store: string): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const place = await (places[store] as (typeof places)[string])(folder)
  onTestFinished(() => place.close().then(() => {}))
  const worked = { times: 0, lastAt: performance.now(), longestMs: 0 }
  const workers = new Set<ChildProcess>()
  const start = (): void => {
    const worker = fork(PROGRAM, [place.url, 'k', String(TTL_MS)], { execArgv: [] })
    onTestFinished(() => {
      worker.kill('SIGKILL')
    })
    workers.add(worker)
    worker.on('message', () => {
      const now = performance.now()
      worked.longestMs = Math.max(worked.longestMs, now - worked.lastAt)
      worked.times += 1
      worked.lastAt = now
    })
  }
  for (let count = 0; count < WORKERS; count += 1) start()
  await until('they work', () => worked.times > WORKERS)
  worked.longestMs = 0

  for (const worker of [...workers].slice(0, KILLS)) {
    await pause(KILL_EVERY_MS)
    worker.kill('SIGKILL')
    start()
    // If a worker dies while a lease or an offer of a dead one lasts, its offer may cost time, too.
    const { times } = worked
    await until('others work', () => worked.times > times)
  }
  const { times } = worked
  await until('others work', () => worked.times > times + WORKERS)
  for (const worker of workers) worker.kill('SIGKILL')
  return worked.longestMs
}
