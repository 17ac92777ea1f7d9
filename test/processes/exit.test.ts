import { describe, expect, test } from 'vitest'
import { clientKinds, inScene } from '../faults/scene.ts'
import { startMember } from './member.ts'

/** Longer than a busy machine keeps a process from its renewal. */
const TTL_MS = 6000

describe.each(clientKinds)('on %s, a process with a lease and a waiter in it ends by itself', (kind) => {
  test.concurrent(
    'once its locks and its client are closed, and leaves the key free',
    inScene(
      async (scene) => {
        await using member = await startMember(scene.server.url, kind)
        await member.ask('acquire', { lease: 'held', key: 'k' })
        const waiting = expect(member.ask('acquire', { lease: 'never', key: 'k' })).rejects.toThrow('closed')
        await scene.untilQueued('k', 1)
        expect(await member.end()).toBe(0)
        await waiting
        expect(member.losses).toMatchObject([{ lease: 'held', code: 'closed' }])
        expect(await scene.room('k')).toMatchObject({ holders: [], queue: [] })
        // The waiter may not have heard yet that it is queued. Then its request is cancelled.
      },
      { cancels: true },
    ),
  )

  test.concurrent(
    'within seconds although the server hangs',
    inScene(
      async (scene) => {
        // A process that has ended cannot send the text of a script that the server turns out not to know.
        await scene.teachScripts()
        await using member = await startMember(scene.server.url, kind)
        await member.ask('acquire', { lease: 'held', key: 'k', options: { ttl: TTL_MS } })
        const waiting = expect(member.ask('acquire', { lease: 'never', key: 'k' })).rejects.toThrow('closed')
        await scene.untilQueued('k', 1)
        await scene.server.pause()
        try {
          expect(await member.end({ abruptly: true })).toBe(0)
          await waiting
        } finally {
          scene.server.resume()
        }
        const next = await scene.direct().acquire('k')
        await next.release()
      },
      { cancels: true },
    ),
  )
})
