import { expect, test } from 'vitest'
import { block } from '../../engine/block.ts'
import { releaseOf, ticket } from '../tickets.ts'
import { startMasters } from './masters.ts'

test('a process that stood still right after it asked does not take the servers for silent', async () => {
  await using masters = await startMasters(3)
  const store = masters.store()
  const holder = ticket({ ttlMs: 30_000 })
  const answer = store.acquire(holder)
  // The event loop stands still for longer than a server may be silent (2 s). The requests are not even sent yet.
  block(2500)
  expect((await answer).tag).toBe('held')
  await store.release(releaseOf(holder))
  await store.close()
})
