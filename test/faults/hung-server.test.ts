import { describe, expect, test } from 'vitest'
import { shortestMs } from '../base/measured.ts'
import { until } from '../servers/until.ts'
import { abortedAt, clientKinds, errorOf, inScene } from './scene.ts'

describe.each(clientKinds)('while the server hangs, on %s,', (kind) => {
  test(
    'the holder is told by its deadline, before the server would give the key to another',
    inScene(async (scene) => {
      const { server } = scene
      const lease = await scene.direct({ kind }).acquire('k', { ttl: 4000 })
      const aborted = abortedAt(lease)
      const rival = scene.direct({ kind }).acquire('k')
      await scene.untilQueued('k', 1)
      let expiresAt = 0
      await until('the server hangs, and no renewal came in between', async () => {
        const before = lease.remainingMs
        const [holder] = (await scene.room('k')).holders
        expiresAt = performance.now() + (holder?.remainingMs ?? 0)
        await server.pause()
        if (lease.remainingMs < before) return true
        server.resume()
        return false
      })
      // Timers fire in the order in which they are due, however late the process is.
      const wasToldInTime = new Promise((resolve) => {
        setTimeout(() => resolve(lease.signal.aborted), expiresAt - performance.now())
      })
      try {
        await aborted
        expect(await wasToldInTime).toBe(true)
        expect(lease.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
        expect(lease.state).toBe('lost')
        server.resume()
        // The server finds the renewals only now. They give the lease a term that no caller uses any more.
        await lease.release()
        const next = await rival
        expect(next.fence).toBeGreaterThan(lease.fence)
        await next.release()
      } finally {
        server.resume()
      }
    }),
  )

  test(
    'a caller hears that the store is silent when its patience ends, and leaves nothing behind when the server goes on',
    inScene(
      async (scene) => {
        const { server } = scene
        const locks = scene.direct({ kind })
        await (await locks.acquire('k')).release()
        await server.pause()
        try {
          const tookMs = await shortestMs(1900, async () => {
            const startedAt = performance.now()
            const error = await errorOf(locks.acquire('k', { wait: 1000 }))
            expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
            return performance.now() - startedAt
          })
          expect(tookMs).toBeGreaterThan(950)
          // The engine would give up an attempt for its silence only later.
          expect(tookMs).toBeLessThan(1900)
        } finally {
          server.resume()
        }
        // The server finds the acquire only now, and the cancel right behind it.
        const other = await scene.direct().acquire('k', { wait: 20_000 })
        expect(await scene.room('k')).toMatchObject({ holders: [{ id: other.id }], queue: [] })
        await other.release()
      },
      { cancels: true },
    ),
  )

  test(
    'a lease outlives a hang that is shorter than its ttl, under its fence',
    inScene(async (scene) => {
      const { server } = scene
      const lease = await scene.direct({ kind }).acquire('k', { ttl: 15_000 })
      const aborted = abortedAt(lease)
      await server.pause()
      const extending = lease.extend()
      server.resume()
      await extending
      expect(lease.state).toBe('held')
      expect(await Promise.race([aborted, 'never'])).toBe('never')
      expect((await scene.room('k')).holders).toMatchObject([{ fence: lease.fence, state: 'held' }])
      await lease.release()
    }),
  )
})

test(
  'a holder that is cut off is told before the server, which goes on, admits the next one',
  inScene(async (scene) => {
    const lease = await scene.proxied().acquire('k', { ttl: 3000 })
    const aborted = abortedAt(lease)
    const rival = scene.direct().acquire('k')
    await scene.untilQueued('k', 1)
    scene.proxy.halfOpen()
    expect(await rival.then(() => lease.signal.aborted)).toBe(true)
    await aborted
    const next = await rival
    expect(next.fence).toBeGreaterThan(lease.fence)
    scene.proxy.normal()
    await lease.release()
    next.assertHeld()
    expect((await scene.room('k')).holders).toMatchObject([{ id: next.id }])
    await next.release()
  }),
)
