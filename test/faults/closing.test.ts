import { describe, expect, test } from 'vitest'
import { awakeMs } from '../base/measured.ts'
import { clientKinds, errorOf, inScene, type Scene } from './scene.ts'

interface Trouble {
  readonly begin: (scene: Scene) => unknown
  readonly end: (scene: Scene) => void
}

const troubles: Readonly<Record<string, Trouble>> = {
  'the server hangs': { begin: ({ server }) => server.pause(), end: ({ server }) => server.resume() },
  'every connection is refused': { begin: ({ proxy }) => proxy.refuse(), end: ({ proxy }) => proxy.normal() },
  'the connection is half open': {
    begin: ({ proxy }) => proxy.halfOpen(),
    end: ({ proxy }) => proxy.normal(),
  },
  'replies are lost': { begin: ({ proxy }) => proxy.dropReplies(), end: ({ proxy }) => proxy.normal() },
  'all is well': { begin: () => {}, end: () => {} },
}

describe.each(clientKinds)('on %s, close() takes a few seconds at most', (kind) => {
  for (const [what, { begin, end }] of Object.entries(troubles)) {
    test.concurrent(
      `while ${what}: the waiter is rejected, the holder is told, and the key is free in the end`,
      inScene(
        async (scene) => {
          const locks = scene.proxied({ kind, ttl: 10_000 })
          const lease = await locks.acquire('k')
          const { signal } = lease
          const waiter = errorOf(locks.acquire('k'))
          await scene.untilQueued('k', 1)
          await begin(scene)
          try {
            expect(await awakeMs(() => locks.close())).toBeLessThan(7000)
            expect(await waiter).toMatchObject({ code: 'closed' })
            expect(signal.aborted).toBe(true)
            expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: 'closed' }))
            expect(await errorOf(locks.acquire('k'))).toMatchObject({ code: 'closed' })
          } finally {
            end(scene)
          }
          const next = await scene.direct().acquire('k')
          expect(next.fence).toBeGreaterThan(lease.fence)
          await next.release()
        },
        { cancels: true },
      ),
    )
  }
})
