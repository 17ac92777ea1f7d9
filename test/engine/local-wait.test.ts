import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { RoomPage } from '../../src/contract/store.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { runModule } from './child-process.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { hear, story } from './hearing.ts'
import { errorOf, outcomeOf, startProcess } from './scene.ts'

const TTL = 30_000

/** Two sets of locks on one store in this process, whose clock stands still until the test lets it pass. */
function scene() {
  const clock = new FakeClock()
  const mocked = vi.spyOn(performance, 'now').mockImplementation(() => clock.monotonicMs())
  const store = memoryStore()
  const [here, other] = [startProcess(store, clock), startProcess(store, clock)]
  const inspect = () => (store.inspect({ prefix: '', cursor: undefined, count: 10 }) as RoomPage).rooms
  const queue = (key: string) => store.localQueue?.waiters(key).length
  onTestFinished(async () => {
    await settled()
    expect(inspect()).toEqual([])
    for (const { engine } of [here, other])
      expect(engine.counts).toEqual({ waiting: 0, hearing: 0, leases: 0, scheduled: 0 })
    expect(clock.timers.keepingAlive).toBe(0)
    mocked.mockRestore()
  })
  return { ...here, clock, store, other, inspect, queue }
}

describe('a wait in the process of the store', () => {
  test('is served in order of arrival, with a full lease and a higher fence each time', async () => {
    const { clock, locks, other, queue, engine } = scene()
    const first = await locks.acquire('k')
    const order: number[] = []
    let fence = first.fence
    const waiting = Array.from({ length: 500 }, async (_, caller) => {
      const lease = await (caller % 2 === 0 ? locks : other.locks).acquire('k')
      order.push(caller)
      expect(lease.fence).toBeGreaterThan(fence)
      expect(lease.remainingMs).toBeGreaterThan(0.98 * TTL)
      fence = lease.fence
      await lease.release()
    })
    expect(queue('k')).toBe(500)
    expect(engine.counts.waiting).toBe(250)
    await clock.advance(50_000)
    expect(order).toEqual([])
    await first.release()
    await Promise.all(waiting)
    expect(order).toEqual(Array.from({ length: 500 }, (_, caller) => caller))
  })

  test('asks the store for nothing while it waits, and looks at the key every two seconds', async () => {
    const { clock, locks, store } = scene()
    const held = await locks.acquire('k', { ttl: '1h' })
    const asked = vi.spyOn(store, 'renew')
    const settle = vi.spyOn(store.localQueue as object as { settle(): number }, 'settle')
    const waiting = Array.from({ length: 100 }, () => locks.acquire('k', { wait: Number.POSITIVE_INFINITY }))
    await clock.advance(60_000)
    expect(asked).not.toHaveBeenCalled()
    expect(settle.mock.calls.length).toBeGreaterThan(20)
    expect(settle.mock.calls.length).toBeLessThan(40)
    await held.release()
    for (const lease of waiting) await (await lease).release()
  })

  test('gets the key of a holder that expired, whichever locks took it', async () => {
    const { clock, locks, other } = scene()
    const first = await locks.acquire('k')
    const short = other.locks.acquire('k', { ttl: 1000, renew: false })
    const last = locks.acquire('k')
    await first.release()
    expect((await short).state).toBe('held')
    await clock.advance(900)
    expect(await outcomeOf(last)).toBe('pending')
    await clock.advance(2000)
    expect((await short).state).toBe('lost')
    await (await last).release()
  })

  test('gets the key as soon as a short lease in front of it expires that is not renewed', async () => {
    const { clock, locks } = scene()
    const first = await locks.acquire('k')
    const short = locks.acquire('k', { ttl: 500, renew: false })
    const last = locks.acquire('k')
    await clock.advance(100)
    await first.release()
    await short
    await clock.advance(499)
    expect(await outcomeOf(last)).toBe('pending')
    await clock.advance(2)
    expect(await outcomeOf(last)).not.toBe('pending')
    await (await last).release()
  })

  test('is over at its deadline, which its error names, and the others keep their places', async () => {
    const { clock, locks, queue } = scene()
    const held = await locks.acquire('k')
    const patient = locks.acquire('k', { wait: '10s' })
    const brief = errorOf(locks.acquire('k', { wait: '2s' }))
    const last = locks.acquire('k', { wait: Number.POSITIVE_INFINITY })
    await clock.advance(1999)
    expect(queue('k')).toBe(3)
    await clock.advance(1)
    expect(await brief).toMatchObject({
      code: 'acquire-timeout',
      waitedMs: 2000,
      ahead: 1,
      holder: { owner: { label: 'test' }, heldMs: 2000 },
    })
    expect(queue('k')).toBe(2)
    await held.release()
    expect(await outcomeOf(last)).toBe('pending')
    await (await patient).release()
    await (await last).release()
  })

  test('that is granted in the tick of its deadline has a lease or an error, and never both', async () => {
    for (const waitedMs of [1999, 2000]) {
      const { clock, locks, inspect } = scene()
      const held = await locks.acquire('k')
      const giveBack = clock.startTimer(waitedMs, () => void held.release())
      const ends: string[] = []
      const waiting = locks.acquire('k', { wait: '2s' }).then(
        async (lease) => {
          ends.push('lease')
          await lease.release()
        },
        (error: { code: string }) => ends.push(error.code),
      )
      await clock.advance(2000)
      await waiting
      giveBack.stop()
      expect(ends.length).toBe(1)
      expect(inspect()).toEqual([])
    }
  })

  test('ends once if it is aborted in the tick of its grant, in either order', async () => {
    for (const releasedFirst of [true, false]) {
      const { locks, queue } = scene()
      const held = await locks.acquire('k')
      const giveUp = new AbortController()
      const waiting = locks.acquire('k', { signal: giveUp.signal })
      const next = locks.acquire('k')
      if (releasedFirst) {
        const released = held.release()
        giveUp.abort(new Error('enough'))
        await released
        await (await waiting).release()
      } else {
        giveUp.abort(new Error('enough'))
        await held.release()
        expect((await errorOf(waiting)).message).toBe('enough')
      }
      await (await next).release()
      expect(queue('k')).toBe(0)
    }
  })

  test('rejects at once if a listener to its request aborts it', async () => {
    const { locks } = scene()
    const held = await locks.acquire('k')
    const giveUp = new AbortController()
    const off = locks.on('requested', () => giveUp.abort('enough'))
    await expect(locks.acquire('k', { signal: giveUp.signal })).rejects.toBe('enough')
    off()
    await held.release()
  })

  test('goes on in a room, in its place, when a reader comes', async () => {
    const { clock, locks, other, queue } = scene()
    const held = await locks.acquire('k')
    const order: string[] = []
    const wait = async (name: string, taken: ReturnType<typeof locks.acquire>) => {
      const lease = await taken
      order.push(name)
      await lease.release()
    }
    const giveUp = new AbortController()
    const waiting = [
      wait('first', locks.acquire('k')),
      wait('second', other.locks.acquire('k', { wait: Number.POSITIVE_INFINITY })),
    ]
    const given = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    const brief = errorOf(locks.acquire('k', { wait: '3s' }))
    waiting.push(wait('third', locks.acquire('k')))
    expect(queue('k')).toBe(5)
    waiting.push(wait('reader', locks.readWrite('k').acquireRead()))
    waiting.push(wait('last', other.locks.acquire('k')))
    expect(queue('k')).toBe(0)
    await clock.advance(10_000)
    expect(await brief).toMatchObject({ code: 'acquire-timeout', waitedMs: 3000, ahead: 3 })
    giveUp.abort(new Error('enough'))
    expect((await given).message).toBe('enough')
    expect(order).toEqual([])
    await held.release()
    await Promise.all(waiting)
    expect(order).toEqual(['first', 'second', 'third', 'reader', 'last'])
  })

  test('is given up in the room, too, if the reader comes while the signal aborts', async () => {
    const { locks } = scene()
    const held = await locks.acquire('k')
    const giveUp = new AbortController()
    let reader: Promise<{ release(): Promise<void> }> | undefined
    giveUp.signal.addEventListener('abort', () => {
      reader = locks.readWrite('k').acquireRead()
    })
    const waiting = [1, 2].map(() => errorOf(locks.acquire('k', { signal: giveUp.signal })))
    giveUp.abort(new Error('enough'))
    for (const error of await Promise.all(waiting)) expect(error.message).toBe('enough')
    await held.release()
    await (await reader)?.release()
  })

  test('hears of an eviction, of itself and of all', async () => {
    const { locks, other, inspect } = scene()
    const held = await locks.acquire('k')
    const evicted = errorOf(locks.acquire('k'))
    const next = errorOf(other.locks.acquire('k'))
    const [waiter] = inspect()[0]?.queue ?? []
    expect(await other.locks.evict('k', waiter?.id ?? '', { reason: 'in the way' })).toEqual([waiter?.id])
    expect(await evicted).toMatchObject({ code: 'lease-lost', evictedBecause: 'in the way' })
    expect((await other.locks.evictAll('k', { reason: 'all' })).length).toBe(2)
    expect(await next).toMatchObject({ code: 'lease-lost', evictedBecause: 'all' })
    await held.release()
  })

  test('ends with its locks, and the waits of other locks go on', async () => {
    const { locks, other, queue } = scene()
    const held = await other.locks.acquire('k')
    const ours = errorOf(locks.acquire('k'))
    const others = other.locks.acquire('k')
    await locks.close()
    expect(await ours).toMatchObject({ code: 'closed' })
    expect(queue('k')).toBe(1)
    await held.release()
    await (await others).release()
  })

  test('is not moved to a room by calls that do not wait', async () => {
    const { locks, other, queue } = scene()
    const held = await locks.acquire('k')
    const waiting = [locks, other.locks].map((each) => each.acquire('k'))
    expect(await other.locks.tryAcquire('k')).toBeNull()
    expect(await locks.readWrite('k').tryAcquireRead()).toBeNull()
    expect(await locks.tryAcquire('k', { minHold: 10, lockDelay: 10 })).toBeNull()
    expect(await locks.tryWithLock('k', () => 'work')).toEqual({ ran: false })
    expect(queue('k')).toBe(2)
    await held.release()
    for (const lease of waiting) await (await lease).release()
  })

  test('of 100,000 callers can be given up at once, and the others keep their places', async () => {
    const { locks, queue } = scene()
    const held = await locks.acquire('k')
    const giveUp = new AbortController()
    const first = locks.acquire('k')
    const endless = { wait: Number.POSITIVE_INFINITY, signal: giveUp.signal }
    const gone = Array.from({ length: 100_000 }, () => locks.acquire('k', endless).catch(() => 'gone'))
    const last = locks.acquire('k')
    expect(queue('k')).toBe(100_002)
    giveUp.abort()
    expect(queue('k')).toBe(2)
    expect(new Set(await Promise.all(gone))).toEqual(new Set(['gone']))
    await held.release()
    await (await first).release()
    await (await last).release()
  })

  test('counts for `maxWaiting`', async () => {
    const { locks, queue } = scene()
    const held = await locks.acquire('k')
    const waiting = [1, 2].map(() => locks.acquire('k', { maxWaiting: 2 }))
    expect(await errorOf(locks.acquire('k', { maxWaiting: 2 }))).toMatchObject({ code: 'queue-full' })
    expect(queue('k')).toBe(2)
    await held.release()
    for (const lease of waiting) await (await lease).release()
  })

  test('tells its events in order, also to a listener that throws, releases or asks again', async () => {
    const { locks } = scene()
    const told: string[] = []
    const offs = (['requested', 'queued', 'acquired', 'released', 'withdrawn'] as const).map((name) =>
      locks.on(name, ({ id }) => {
        told.push(`${name} ${names.get(id) ?? '?'}`)
        throw new Error('a listener')
      }),
    )
    const names = new Map<string, string>()
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const first = await locks.acquire('k')
    names.set(first.id, 'first')
    let released: Promise<void> | undefined
    const offQueued = locks.on('queued', () => {
      released ??= first.release()
    })
    const second = await locks.acquire('k')
    names.set(second.id, 'second')
    offQueued()
    const third = locks.acquire('k')
    await second.release()
    await (await third).release()
    await released
    for (const off of offs) off()
    expect(told.map((one) => one.split(' ')[0])).toEqual([
      'requested',
      'acquired',
      'requested',
      'queued',
      'released',
      'acquired',
      'requested',
      'queued',
      'released',
      'acquired',
      'released',
    ])
    expect(warned).toHaveBeenCalled()
    warned.mockRestore()
  })

  test('that is granted in the tick of a close() is told as acquired before it is told as released', async () => {
    const { clock, locks } = scene()
    const heard = hear(locks)
    const held = await locks.acquire('k')
    const waiting = locks.acquire('k')
    const closing = locks.close()
    void held.release()
    const lease = await waiting
    await clock.until(closing)
    const told = heard.filter(({ id }) => id === lease.id)
    expect(story(told)).toBe('requested queued acquired released')
  })

  test('does not run listeners inside of the release, nor in the scope of the one that releases', async () => {
    const { locks } = scene()
    const held = await locks.acquire('k')
    const waiting = locks.acquire('k')
    const told: string[] = []
    const off = locks.on('acquired', ({ key }) => told.push(key))
    const released = locks.withLock('other', async () => {
      told.length = 0
      const done = held.release()
      expect(told).toEqual([])
      await done
    })
    await (await waiting).release()
    await released
    expect(told).toEqual(['k'])
    off()
  })
})

test('a process with such a wait ends when the wait does, and not sooner', async () => {
  const { code, printed, complaints } = await runModule(
    `const locks = createLocks(memoryStore())
     await locks.acquire("k", { ttl: 300, renew: false })
     const lease = await locks.acquire("k", { ttl: "1h", wait: Infinity })
     await lease.release()
     console.log("end")`,
  )
  expect({ code, printed, complaints }).toEqual({ code: 0, printed: 'end', complaints: '' })
})
