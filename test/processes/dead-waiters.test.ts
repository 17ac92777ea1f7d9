import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { connect, type Locks } from '../../src/index.ts'
import { shortestMs } from '../base/measured.ts'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const PROGRAM = await bundled(new URL('waiters-process.ts', import.meta.url))
const TTL_MS = 30_000
/** The acceptance term for a ttl of three seconds or more, as in `engine/terms.ts`. */
const ACCEPT_MS = 3000
const DEAD = 5
const CROWD = 1000
/** Several tries on a busy machine. */
const TRIES = { timeout: 600_000 }

/** These stores grant the key by a message, to a waiter that they have heard of within its acceptance term. */
const GRANT_BY_MESSAGE = new Set(['redis', 'cluster', 'postgres', 'sqlite'])

/** These stores see that a process has ended, before its acceptance term is over. */
const SEE_DEATH = new Set(['redis', 'redlock', 'postgres', 'sqlite'])

for (const store of Object.keys(places)) {
  test(
    `${store}: a free key passes all waiters of a frozen process within one acceptance term`,
    TRIES,
    async () => {
      const passedMs = await shortestMs(1.5 * ACCEPT_MS, () =>
        handOverPast(store, async (child) => {
          child.send('freeze')
          await once(child, 'message')
          // A store that has just heard of the head takes it for alive; see granted-head.test.ts.
          if (GRANT_BY_MESSAGE.has(store)) await pause(ACCEPT_MS + 100)
        }),
      )
      expect(passedMs).toBeLessThan(1.5 * ACCEPT_MS)
    },
  )

  const within = SEE_DEATH.has(store) ? 'at once' : 'within one acceptance term'
  test(`${store}: a free key passes all waiters of a killed process ${within}`, TRIES, async () => {
    const limitMs = SEE_DEATH.has(store) ? ACCEPT_MS / 2 : 1.5 * ACCEPT_MS
    const passedMs = await shortestMs(limitMs, () =>
      handOverPast(store, async (child) => {
        // No event tells when the subscription flows, or when the servers have heard that the connections are closed. So
        // both pauses are fixed times.
        await pause(500)
        child.kill('SIGKILL')
        await once(child, 'exit')
        await pause(500)
      }),
    )
    expect(passedMs).toBeLessThan(limitMs)
  })
}

for (const store of Object.keys(places)) {
  test(
    `${store}: a thousand waiters of a killed process are passed within one acceptance term, and no other waiter loses its place`,
    TRIES,
    async () => {
      const passedMs = await shortestMs(1.5 * ACCEPT_MS, () => handOverPastCrowd(store))
      expect(passedMs).toBeLessThan(1.5 * ACCEPT_MS)
    },
  )
}

/** How long a free key needs from the waiter in front of a dead crowd to the last living one behind it. */
async function handOverPastCrowd(store: string): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const place = await (places[store] as (typeof places)[string])(folder)
  onTestFinished(() => place.close().then(() => {}))
  const [holding, living] = [await connectTo(place.url), await connectTo(place.url)]
  const served: string[] = []
  const serve = (name: string) => living.withLock('k', () => served.push(name))
  const holder = await holding.acquire('k')
  const before = serve('before them')
  await untilQueued(holding, 1)
  const child = startWaiters(place.url, CROWD)
  await untilQueued(holding, 1 + CROWD)
  const behind = serve('behind them')
  await untilQueued(holding, 2 + CROWD)
  const last = serve('last')
  await untilQueued(holding, 3 + CROWD)
  // By then every waiter has been remembered once more, on Redis, SQLite and PostgreSQL as part of a group.
  await pause(2 * ACCEPT_MS)

  child.kill('SIGKILL')
  await once(child, 'exit')
  // The servers have to notice the death, and the head must not count as alive by its last request.
  await pause(ACCEPT_MS + 100)
  await holder.release()
  await before
  const startedAt = performance.now()
  await Promise.all([behind, last])
  const tookMs = performance.now() - startedAt
  expect(served).toEqual(['before them', 'behind them', 'last'])
  return tookMs
}

/** How long a key is free before the first living waiter has it. All waiters in front of that one are away. */
async function handOverPast(store: string, end: (child: ChildProcess) => unknown): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const place = await (places[store] as (typeof places)[string])(folder)
  onTestFinished(() => place.close().then(() => {}))
  const [holding, living] = [await connectTo(place.url), await connectTo(place.url)]
  const holder = await holding.acquire('k')
  const child = startWaiters(place.url)
  await untilQueued(holding, DEAD)
  const waiting = living.acquire('k')
  await untilQueued(holding, DEAD + 1)

  await end(child)
  const startedAt = performance.now()
  await holder.release()
  await (await waiting).release()
  return performance.now() - startedAt
}

async function connectTo(url: string): Promise<Locks> {
  const locks = await connect(url, { ttl: TTL_MS, wait: '10m' })
  onTestFinished(() => locks.close())
  return locks
}

function startWaiters(url: string, count = DEAD): ChildProcess {
  const child = fork(PROGRAM, [url, 'k', String(count), String(TTL_MS)], { execArgv: [] })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  return child
}

async function untilQueued(locks: Locks, count: number): Promise<void> {
  await until(
    `${count} are in the queue`,
    async () => {
      for await (const { queue } of locks.inspect({ prefix: 'k' })) return queue.length === count
      return false
    },
    { withinMs: 150_000 },
  )
}
