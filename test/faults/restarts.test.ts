import { expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { abortedAt, inScene } from './scene.ts'

test(
  'a server that restarts with all it had keeps the lease, its fence and the places in the queue',
  inScene(
    async (scene) => {
      const lease = await scene.direct().acquire('k', { ttl: 30_000 })
      const aborted = abortedAt(lease)
      const served: string[] = []
      const waiters: Promise<unknown>[] = []
      for (const [index, name] of ['first', 'second', 'third'].entries()) {
        waiters.push(scene.direct().withLock('k', () => served.push(name)))
        await scene.untilQueued('k', index + 1)
      }
      await scene.server.restart()
      const { fence } = lease
      await lease.extend()
      expect(lease.state).toBe('held')
      expect(lease.fence).toBe(fence)
      expect(await scene.room('k')).toMatchObject({
        holders: [{ fence, state: 'held' }],
        queue: [{}, {}, {}],
      })
      expect(lease.signal.aborted).toBe(false)
      // The holder has a subscription, too, because it wants to hear of an eviction.
      await scene.untilListening(4)
      await lease.release()
      await Promise.all(waiters)
      expect(served).toEqual(['first', 'second', 'third'])
      expect(await Promise.race([aborted, 'never aborted'])).toBe('never aborted')
    },
    { appendOnly: true },
  ),
)

test(
  'a server that was killed and restarts with all it had keeps the lease, too',
  inScene(
    async (scene) => {
      const lease = await scene.direct().acquire('k', { ttl: 30_000 })
      await scene.server.kill()
      await scene.server.restart()
      await lease.extend()
      expect((await scene.room('k')).holders).toMatchObject([{ fence: lease.fence, state: 'held' }])
      await lease.release()
    },
    { appendOnly: true },
  ),
)

test(
  'a server that restarts with nothing: the holder is told why, waiters are served, and fences go on rising',
  inScene(async (scene) => {
    const lease = await scene.direct().acquire('k', { ttl: 30_000 })
    const aborted = abortedAt(lease)
    const waiting = [scene.direct(), scene.direct()].map((locks) => locks.acquire('k', { ttl: 30_000 }))
    await scene.untilQueued('k', 2)
    await scene.server.restart()
    await aborted
    expect(lease.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'store-reset', key: 'k' })
    // A renewal has told the holder, long before its deadline.
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'store-reset' }))
    await lease.release()
    const next = await Promise.race(waiting)
    expect(next.fence).toBeGreaterThan(lease.fence)
    expect((await scene.room('k')).holders).toMatchObject([{ id: next.id, fence: next.fence }])
    await next.release()
    const last = (await Promise.all(waiting)).find((one) => one !== next)
    expect(last?.fence).toBeGreaterThan(next.fence)
    await last?.release()
  }),
)

test(
  'FLUSHALL in the middle: the holder is told, all waiters are served, and no fence comes twice',
  inScene(async (scene) => {
    const locks = [scene.direct({ ttl: 9000 }), scene.direct({ ttl: 9000 })]
    const fences: bigint[] = []
    const before = await locks[0]?.acquire('k')
    if (before === undefined) throw new Error('Expected locks')
    const aborted = abortedAt(before)
    let inside = 0
    const waiters = locks.flatMap((one) =>
      Array.from({ length: 10 }, () =>
        one.withLock('k', (lease) => {
          inside += 1
          expect(inside).toBe(1)
          fences.push(lease.fence)
          inside -= 1
        }),
      ),
    )
    await scene.untilQueued('k', 20)
    await scene.server.command('FLUSHALL')
    await aborted
    expect(before.signal.reason).toMatchObject({ reason: 'store-reset' })
    await Promise.all(waiters)
    expect(fences).toHaveLength(20)
    expect([before.fence, ...fences]).toEqual(
      [...new Set([before.fence, ...fences])].sort((one, other) => (one < other ? -1 : 1)),
    )
  }),
)

test(
  'FLUSHALL during the hand-overs of a key stops no process',
  inScene(async (scene) => {
    const locks = [scene.direct({ ttl: 9000 }), scene.direct({ ttl: 9000 })]
    let served = 0
    let lost = 0
    let stopping = false
    const workers = locks.flatMap((one) =>
      Array.from({ length: 10 }, async () => {
        while (!stopping) {
          await one
            .withLock('k', () => {
              served += 1
            })
            .catch((error: unknown) => {
              expect(error).toMatchObject({ code: 'lease-lost', reason: 'store-reset' })
              lost += 1
            })
        }
      }),
    )
    try {
      for (let flush = 1; flush <= 3; flush += 1) {
        const before = served
        await until('the key goes round', () => served >= before + 20)
        await scene.server.command('FLUSHALL')
      }
      const after = served
      await until('the key goes round again', () => served >= after + 20)
    } finally {
      stopping = true
      await Promise.all(workers)
    }
    expect(lost).toBeLessThanOrEqual(3)
  }),
)
