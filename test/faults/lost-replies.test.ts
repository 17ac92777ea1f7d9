import { describe, expect, test } from 'vitest'
import { clientKinds, inScene } from './scene.ts'

// A caller that has asked twice cannot know whether both requests have arrived, so its release leaves a tombstone.
const DOUBTFUL = { cancels: true }

// The server knows the scripts before each test. So the reply that is lost is the answer itself, and not the report
// that the server has no such script.
describe.each(clientKinds)('when the connection breaks after the server has acted, on %s,', (kind) => {
  test(
    'the holder that an acquire has made is the only one, and has the fence that the server gave',
    inScene(async (scene) => {
      const locks = scene.proxied({ kind })
      await scene.teachScripts()
      const lost = scene.proxy.loseNextReply('{k}')
      const asking = locks.acquire('k')
      await lost
      const granted = (await scene.room('k')).holders
      expect(granted).toHaveLength(1)
      const lease = await asking
      expect(lease.fence).toBe(granted[0]?.fence)
      expect(lease.id).toBe(granted[0]?.id)
      expect((await scene.room('k')).holders).toMatchObject([{ id: lease.id, fence: lease.fence }])
      expect(await scene.direct().tryAcquire('k')).toBeNull()
      await lease.release()
    }, DOUBTFUL),
  )

  test(
    'a waiter keeps the one place that it had',
    inScene(async (scene) => {
      const locks = scene.proxied({ kind })
      await scene.teachScripts()
      const direct = scene.direct()
      const holder = await direct.acquire('k')
      const lost = scene.proxy.loseNextReply('{k}')
      const asking = locks.acquire('k')
      await lost
      const behind = direct.acquire('k')
      await scene.untilQueued('k', 2)
      await holder.release()
      const lease = await asking
      expect(lease.fence).toBeGreaterThan(holder.fence)
      expect((await scene.room('k')).queue).toHaveLength(1)
      await lease.release()
      const last = await behind
      expect(last.fence).toBeGreaterThan(lease.fence)
      await last.release()
    }, DOUBTFUL),
  )

  test(
    'a release is repeated without taking the key from its next holder',
    inScene(async (scene) => {
      const lease = await scene.proxied({ kind }).acquire('k')
      const others = [scene.direct(), scene.direct()]
      const waiting = others.map((locks) => locks.acquire('k'))
      await scene.untilQueued('k', 2)
      await scene.teachScripts()
      const lost = scene.proxy.loseNextReply('{k}')
      const releasing = lease.release()
      await lost
      const next = await Promise.race(waiting)
      await releasing
      expect(lease.state).toBe('released')
      expect(await scene.room('k')).toMatchObject({
        holders: [{ id: next.id, fence: next.fence, state: 'held' }],
        queue: [{}],
      })
      next.assertHeld()
      await next.release()
      const last = (await Promise.all(waiting)).find((one) => one !== next)
      expect(last?.fence).toBeGreaterThan(next.fence)
      await last?.release()
    }),
  )

  test(
    'a renewal is repeated, and the lease goes on under its fence',
    inScene(async (scene) => {
      const lease = await scene.proxied({ kind, renew: false }).acquire('k', { ttl: 20_000 })
      await lease.extend()
      const { fence, remainingMs: before } = lease
      const lost = scene.proxy.loseNextReply('{k}')
      const extending = lease.extend(60_000)
      await lost
      await extending
      expect(lease.state).toBe('held')
      expect(lease.fence).toBe(fence)
      expect(lease.remainingMs).toBeGreaterThan(before + 20_000)
      expect((await scene.room('k')).holders).toMatchObject([{ id: lease.id, fence, state: 'held' }])
      await lease.release()
    }),
  )
})
