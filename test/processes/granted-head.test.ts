import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { connect, type Lease, type Locks } from '../../src/index.ts'
import { shortestMs, undisturbed } from '../base/measured.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'

const PROGRAM = fileURLToPath(new URL('waiters-process.ts', import.meta.url))
const TTL_MS = 4000

/** The stores with a server whose messages are leases. test/stores/sqlite/messages has the same for processes on a file. */
const SERVERS = { redis: startRedis, postgres: startPostgres }
type StoreName = keyof typeof SERVERS
const stores = Object.keys(SERVERS) as StoreName[]

/** The process of `head` has the head of the queue just before its turn, and is gone when the turn comes. */
interface Scene {
  readonly head: ChildProcess
  readonly proxy: FaultProxy
}

test.each(stores)('%s: a head that is killed just before its turn is passed at once', async (store) => {
  const passedMs = await shortestMs(TTL_MS / 2, async () => {
    const { tookMs } = await handOverPast(store, async ({ head }) => {
      // No event tells when the subscription flows, or when the server has heard that the connections are closed. So
      // both pauses are fixed times.
      await pause(500)
      head.kill('SIGKILL')
      await once(head, 'exit')
      await pause(500)
    })
    return tookMs
  })
  expect(passedMs).toBeLessThan(TTL_MS / 2)
})

test.each(stores)(
  '%s: a head that is frozen just before its turn costs its ttl, as a holder that is frozen just after',
  async (store) => {
    const { tookMs, states } = await undisturbed(isHeldForTtl, () =>
      handOverPast(store, async ({ head }) => {
        await pause(500)
        head.send('freeze')
        await once(head, 'message')
      }),
    )
    expect(states).toEqual(['held'])
    expect(tookMs).toBeGreaterThan(TTL_MS / 2)
    expect(tookMs).toBeLessThan(TTL_MS + 3000)
  },
)

test.each(stores)(
  '%s: a head that is cut off just before its turn costs its ttl, and stands in the queue again once it is back',
  async (store) => {
    const { tookMs, lease, locks, states } = await undisturbed(isHeldForTtl, () =>
      handOverPast(store, async ({ proxy }) => {
        await pause(500)
        proxy.halfOpen()
      }),
    )
    expect(states).toEqual(['held'])
    expect(tookMs).toBeGreaterThan(TTL_MS / 2)
    expect(tookMs).toBeLessThan(TTL_MS + 3000)
    lease.assertHeld()
    await untilQueued(locks, 1)
    expect((await roomOf(locks))?.holders).toMatchObject([{ id: lease.id }])
  },
)

/** A head that the store has not heard of for its acceptance term is passed at once. */
function isHeldForTtl({ tookMs, states }: HandOver): boolean {
  return states?.join() === 'held' && tookMs < TTL_MS + 3000
}

interface HandOver {
  readonly tookMs: number
  /** In which state the head was admitted. */
  readonly states: readonly string[] | undefined
  readonly lease: Lease
  readonly locks: Locks
}

/** Measures how long the key is free until the next waiter works. */
async function handOverPast(store: StoreName, end: (scene: Scene) => Promise<void>): Promise<HandOver> {
  const server = await SERVERS[store]()
  onTestFinished(() => server.close())
  const proxy = await startProxy({ targetPort: server.port })
  onTestFinished(() => proxy.close())
  const [holding, living] = [await connectTo(server.url), await connectTo(server.url)]
  const holder = await holding.acquire('k')
  const through = server.url.replace(`:${server.port}`, `:${proxy.port}`)
  const head = fork(PROGRAM, [through, 'k', '1', String(TTL_MS)], {
    execArgv: ['--import', 'tsx'],
  })
  onTestFinished(() => {
    head.kill('SIGKILL')
  })
  await untilQueued(holding, 1)
  const waiting = living.acquire('k')
  await untilQueued(holding, 2)
  await end({ head, proxy })
  const startedAt = performance.now()
  await holder.release()
  const states = (await roomOf(holding))?.holders.map(({ state }) => state)
  const lease: Lease = await waiting
  const tookMs = performance.now() - startedAt
  proxy.normal()
  onTestFinished(() => lease.release())
  return { tookMs, lease, states, locks: holding }
}

async function connectTo(url: string): Promise<Locks> {
  const locks = await connect(url, { ttl: TTL_MS, wait: '1m' })
  onTestFinished(() => locks.close())
  return locks
}

async function roomOf(locks: Locks) {
  for await (const room of locks.inspect({ prefix: 'k' })) return room
  return undefined
}

async function untilQueued(locks: Locks, count: number): Promise<void> {
  await until(`${count} are in the queue`, async () => (await roomOf(locks))?.queue.length === count, {
    withinMs: 60_000,
  })
}
