import { describe, expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { block } from '../engine/block.ts'
import { methodsOf } from '../engine/methods-of.ts'
import { errorOf } from '../engine/scene.ts'

const TTL = 60

function locksOver(store: Store = memoryStore()): Locks {
  const locks = createLocks(store, { ttl: TTL })
  onTestFinished(() => locks.close())
  return locks
}

/**
 * A process whose event loop stands still between the grant of each lease and the work under it, for longer than the
 * ttl.
 */
function blockedBeforeWork(): Locks {
  const locks = locksOver()
  onTestFinished(locks.on('working', () => block(TTL)))
  return locks
}

const forms: Record<string, (locks: Locks, work: () => string) => Promise<unknown>> = {
  withLock: (locks, work) => locks.withLock('k', work),
  tryWithLock: (locks, work) => locks.tryWithLock('k', work),
  withLocks: (locks, work) => locks.withLocks(['k', 'l'], work),
  'withLocks with one key': (locks, work) => locks.withLocks(['k'], work),
  tryWithLocks: (locks, work) => locks.tryWithLocks(['k', 'l'], work),
  read: (locks, work) => locks.readWrite('k').read(work),
  tryRead: (locks, work) => locks.readWrite('k').tryRead(work),
  write: (locks, work) => locks.readWrite('k').write(work),
  tryWrite: (locks, work) => locks.readWrite('k').tryWrite(work),
  withPermits: (locks, work) => locks.semaphore('k', 3).withPermits({ units: 2 }, work),
  tryWithPermits: (locks, work) => locks.semaphore('k', 3).tryWithPermits(work),
  once: (locks, work) => locks.once('k', { remember: '1h' }, work),
}

describe('when the event loop stands still between the grant and the work, for longer than the ttl', () => {
  test.each(Object.entries(forms))('%s does not begin the work, and says why', async (_, form) => {
    let begun = 0
    const call = form(blockedBeforeWork(), () => {
      begun += 1
      return 'done'
    })
    expect(await errorOf(call)).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    expect(begun).toBe(0)
  })
})

test('once does not begin when its lease was lost during its look, nor takes the work for done', async () => {
  const store = memoryStore()
  let releases = 0
  const locks = locksOver({
    ...methodsOf(store),
    release(request, atMs) {
      const answer = store.release(request, atMs)
      // The second look is the one under the lock.
      if (request.key === 'k#done' && ++releases === 2) block(TTL)
      return answer
    },
  })
  let begun = 0
  const work = () => {
    begun += 1
  }
  expect(await errorOf(locks.once('k', { remember: '1h' }, work))).toMatchObject({ code: 'lease-lost' })
  expect(begun).toBe(0)
  expect(releases).toBe(2)
  expect(await locks.once('k', { remember: '1h', ttl: '30s' }, work)).toMatchObject({ ran: true })
  expect(begun).toBe(1)
})

test('a leader whose lease ended before its work began does not begin, and campaigns again', async () => {
  const locks = locksOver()
  let blocks = 2
  onTestFinished(
    locks.on('working', () => {
      if (blocks-- > 0) block(TTL)
    }),
  )
  const fences: bigint[] = []
  const terms: string[] = []
  onTestFinished(locks.on('resigned', ({ reason }) => terms.push(reason)))
  const result = await locks.election('k').campaign({ ttl: TTL }, ({ fence, signal }) => {
    fences.push(fence)
    return signal.aborted ? 'too late' : 'led'
  })
  expect(result).toBe('led')
  expect(fences).toHaveLength(1)
  expect(terms.slice(0, 2)).toEqual(['lost', 'lost'])
})
