import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { ticket } from '../tickets.ts'
import { startMasters } from './masters.ts'
import { steeredLink } from './steered-link.ts'

test('servers that work through a long row of requests are slow, and not silent', async () => {
  await using masters = await startMasters(3)
  const links = masters.urls.map((url) => {
    const steered = steeredLink(url)
    let lastReply: Promise<unknown> = Promise.resolve()
    // The server sends one reply every 50 ms, so the last one comes later than any server may be silent (2 s).
    steered.onReply = async () => {
      lastReply = lastReply.then(() => pause(50))
      await lastReply
    }
    return steered.link
  })
  const store = new RedlockStore(links, { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 })
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, index) => store.acquire(ticket({ key: `k${index}` }))),
  )
  expect(new Set(answers.map(({ tag }) => tag))).toEqual(new Set(['held']))
  await store.close()
})
