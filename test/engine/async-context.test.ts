import { AsyncLocalStorage } from 'node:async_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { settled } from './fake-clock.ts'
import { errorOf, realScene, startProcess } from './scene.ts'

const request = new AsyncLocalStorage<object>()

/** A store that records the async context in which the engine renews leases. */
function watchedScene() {
  const store = memoryStore()
  const renewedIn: unknown[] = []
  const renew = store.renew.bind(store)
  store.renew = (tickets) => {
    renewedIn.push(request.getStore())
    return renew(tickets)
  }
  return { renewedIn, ...startProcess(store, systemClock) }
}

describe('what the engine does later runs in no caller’s async context', () => {
  test('a renewal, whichever caller took a lease first', async () => {
    const { locks, renewedIn } = watchedScene()
    const lease = await request.run({ of: 'a request' }, () => locks.acquire('k', { ttl: 900 }))
    await until('it was renewed twice', () => renewedIn.length > 1)
    expect(new Set(renewedIn)).toEqual(new Set([undefined]))
    await lease.release()
  })

  test('the confirmation of a waiter that was woken, whichever caller released the key', async () => {
    const { locks, renewedIn } = watchedScene()
    const held = await locks.acquire('k')
    const waiting = locks.acquire('k', { minHold: 1 })
    await settled()
    await request.run({ of: 'another request' }, () => held.release())
    await (await waiting).release()
    expect(new Set(renewedIn)).toEqual(new Set([undefined]))
  })

  test('the work after a message that is a lease, whichever caller released the key', async () => {
    const { locks } = watchedScene()
    const toldIn: unknown[] = []
    const held = await locks.acquire('k')
    const waiting = locks.acquire('k')
    await settled()
    locks.on('acquired', () => toldIn.push(request.getStore()))
    await request.run({ of: 'another request' }, () => held.release())
    await (await waiting).release()
    expect(toldIn).toEqual([undefined])
  })

  test('the listener of a signal that a timer aborts: it is in no scope, so it neither waits for itself nor gets in', async () => {
    const { locks } = realScene()
    const tried: unknown[] = []
    const lease = await locks.acquire('b', { ttl: 120, renew: false })
    lease.signal.addEventListener('abort', () => {
      tried.push(
        locks.tryWithLock('a', { reentrant: true }, () => 'in'),
        errorOf(locks.withLock('a', { wait: 0 }, () => 'in')),
      )
    })
    await locks.withLock('a', async () => {
      // This lease is due sooner than all others, so the engine sets its timer anew here.
      const short = await locks.acquire('short', { ttl: 60 })
      await until('the other lease is lost', () => lease.signal.aborted)
      const [attempt, error] = await Promise.all(tried)
      expect(attempt).toEqual({ ran: false })
      expect(error).toMatchObject({ code: 'acquire-timeout' })
      await short.release()
    })
    // The lease ends by our clocks a little earlier than by the store's.
    await lease.release()
  })

  test('so an ended request is not kept in memory by leases that go on', async () => {
    const { locks, renewedIn } = watchedScene()
    const leader = await locks.acquire('leader', { ttl: 900 })
    const ended = await takeAndRelease(locks)
    const before = renewedIn.length
    await until('the other one was renewed since', () => renewedIn.length > before + 1)
    await until('it was collected', async () => {
      collectGarbage()
      return ended.deref() === undefined
    })
    await leader.release()
  })
})

/** Runs a request that has something in its store, and that takes a lease which is due sooner than all others. */
async function takeAndRelease(locks: ReturnType<typeof watchedScene>['locks']): Promise<WeakRef<object>> {
  const store = { of: 'a request' }
  await request.run(store, () => locks.withLock('k', { ttl: 500 }, () => settled()))
  return new WeakRef(store)
}

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')
