import { setImmediate as nextTurn } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Lease } from '../../src/index.ts'
import { until } from '../servers/until.ts'
import { inScene } from './scene.ts'

test(
  'a thousand waiters of one process are served in order, each for two requests, and none gives up',
  inScene(async (scene) => {
    const { server } = scene
    const locks = scene.direct({ wait: 150_000 })
    const first = await locks.acquire('k')
    const served: number[] = []
    const fences: bigint[] = []
    const waiters = Array.from({ length: 1000 }, async (_, number) => {
      const lease = await locks.acquire('k')
      served.push(number)
      fences.push(lease.fence)
      await lease.release()
    })
    await scene.untilQueued('k', 1000)
    await server.command('CONFIG', 'RESETSTAT')
    const startedAt = performance.now()
    await first.release()
    await Promise.all(waiters)
    const seconds = (performance.now() - startedAt) / 1000
    expect(served).toEqual(Array.from({ length: 1000 }, (_, number) => number))
    expect(fences).toEqual([...new Set(fences)].sort((one, other) => (one < other ? -1 : 1)))
    // Besides these requests, the waiters now and then send one to be remembered, however long they wait.
    expect(await scene.requests()).toBeLessThanOrEqual(2.1 * 1000 + 2 * seconds)
  }),
)

test(
  'a hundred waiters that wait cost at most two requests a second',
  inScene(async (scene) => {
    const { server } = scene
    const holder = await scene.direct().acquire('k')
    const locks = scene.direct({ wait: 60_000 })
    const waiters = Array.from({ length: 100 }, () => locks.acquire('k'))
    await scene.untilQueued('k', 100)
    // The subscription, and the requests that follow once it stands, are paid once.
    await until(
      'wakes flow',
      async () => ((await server.command('PUBSUB', 'CHANNELS')) as string[]).length > 0,
    )
    const startedAt = performance.now()
    await server.command('CONFIG', 'RESETSTAT')
    await until('five seconds have passed', () => performance.now() - startedAt > 5000)
    const requests = await scene.requests()
    const seconds = (performance.now() - startedAt) / 1000
    // Some requests are necessary: the store would forget a waiter that it does not hear of.
    expect(requests).toBeGreaterThan(0)
    expect(requests / seconds).toBeLessThanOrEqual(2)
    expect((await scene.room('k')).queue.length).toBe(100)
    await holder.release()
    for (const waiter of waiters) await (await waiter).release()
  }),
)

test(
  'the application’s load on its own client does not hold up a renewal',
  inScene(async (scene) => {
    const client = new Redis(scene.server.url)
    try {
      const lease = await scene.locksOn(client).acquire('k', { ttl: 5000 })
      const renewals: number[] = []
      const startedAt = performance.now()
      const states = new Set<string>()
      // The client gets no answer for as long as the ttl, while 20 MB pile up behind.
      const blocking = client.blpop('never', 5)
      const load = sendMuch(client)
      let last = lease.remainingMs
      await until('more than twice the ttl has passed', () => {
        states.add(lease.state)
        if (lease.remainingMs > last) renewals.push(lease.remainingMs)
        last = lease.remainingMs
        return renewals.length >= 4 && performance.now() - startedAt > 10_500
      })
      lease.assertHeld()
      expect([...states]).not.toContain('lost')
      expect((await scene.room('k')).holders).toMatchObject([{ fence: lease.fence, state: 'held' }])
      await blocking
      await load
      await client.del('load')
      await lease.release()
    } finally {
      client.disconnect()
    }
  }),
)

test(
  'a lease has one holder at a time while the scripts are flushed again and again',
  inScene(async (scene) => {
    const locks = [scene.direct(), scene.direct()]
    const held: Lease[] = []
    let holding = 0
    let flushed = 0
    const all = locks.flatMap((one) =>
      Array.from({ length: 20 }, () =>
        one.withLock('k', async (lease) => {
          holding += 1
          expect(holding).toBe(1)
          if (held.length % 5 === 0) {
            await scene.server.command('SCRIPT', 'FLUSH')
            flushed += 1
          }
          held.push(lease)
          holding -= 1
        }),
      ),
    )
    await Promise.all(all)
    expect(flushed).toBe(8)
    expect(held.length).toBe(40)
    expect(held.map(({ fence }) => fence)).toEqual(
      held.map(({ fence }) => fence).sort((one, other) => (one < other ? -1 : 1)),
    )
  }),
)

/** Sends the load in pieces. A blocked event loop would hold up everything, and another test is about that. */
async function sendMuch(client: Redis): Promise<void> {
  const replies: Promise<unknown>[] = []
  for (let piece = 0; piece < 100; piece += 1) {
    for (let count = 0; count < 200; count += 1) replies.push(client.set('load', 'x'.repeat(1000)))
    await nextTurn()
  }
  await Promise.all(replies)
}
