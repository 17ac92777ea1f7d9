import { describe, expect, test } from 'vitest'
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
      const [holder] = (await scene.room('k')).holders
      const expiresAt = Date.now() + (holder?.remainingMs ?? 0)
      await server.pause()
      try {
        const toldAt = await aborted
        expect(toldAt).toBeLessThan(expiresAt)
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
        const startedAt = performance.now()
        try {
          const error = await errorOf(locks.acquire('k', { wait: 1000 }))
          expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
          expect(performance.now() - startedAt).toBeGreaterThan(950)
          // The engine would give up an attempt for its silence only much later.
          expect(performance.now() - startedAt).toBeLessThan(4000)
        } finally {
          server.resume()
        }
        // The server finds the acquire only now, and the cancel right behind it.
        const other = await scene.direct().acquire('k', { wait: 5000 })
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
      const lease = await scene.direct({ kind }).acquire('k', { ttl: 5000 })
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
    const [toldAt, takenAt] = await Promise.all([aborted, rival.then(() => Date.now())])
    expect(toldAt).toBeLessThan(takenAt)
    const next = await rival
    expect(next.fence).toBeGreaterThan(lease.fence)
    scene.proxy.normal()
    await lease.release()
    next.assertHeld()
    expect((await scene.room('k')).holders).toMatchObject([{ id: next.id }])
    await next.release()
  }),
)
