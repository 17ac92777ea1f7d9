import { expect, test, vi } from 'vitest'
import type { RoomPage } from '../../src/contract/store.ts'
import type { Lease } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { seededRandom } from '../../src/testing/random.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { startProcess } from './scene.ts'

/** A call for a key, from its beginning to its end. */
interface Call {
  readonly number: number
  readonly key: string
  readonly isExclusive: boolean
  /** It ends only with a lease, or by an abort. */
  isPatient: boolean
  readonly giveUp: AbortController
  ends: number
  lease: Lease | undefined
}

test.each(Array.from({ length: 40 }, (_, seed) => seed))(
  'whatever listeners and callers do, a call in the process of the store ends once, in order, and alone with its key (seed %i)',
  async (seed) => {
    const random = seededRandom(`local waits ${seed}`)
    const clock = new FakeClock()
    const mocked = vi.spyOn(performance, 'now').mockImplementation(() => clock.monotonicMs())
    /** Without listeners, evictions and pauses of the process, calls come to the store as they begin, and none is forgotten. */
    const isOrderly = seed % 2 === 0
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const store = memoryStore()
    const processes = [startProcess(store, clock), startProcess(store, clock), startProcess(store, clock)]
    const calls: Call[] = []
    const wrong: string[] = []
    /** These were taken by force. Their holders may not have heard of it yet, and only their fences stop them. */
    const evicted = new Set<string>()
    const fences = new Map<string, bigint>()
    let begun = 0
    const open = () => calls.filter(({ ends }) => ends === 0)
    const held = () => calls.filter(({ lease }) => lease?.state === 'held' && !evicted.has(lease.id))

    const call = () => {
      begun += 1
      const { locks } = random.pick(processes)
      const key = random.pick(['a', 'a', 'a', 'b'])
      const isExclusive = random.chance(0.95)
      const one: Call = {
        number: begun,
        key,
        isExclusive,
        giveUp: new AbortController(),
        ends: 0,
        lease: undefined,
        isPatient: false,
      }
      calls.push(one)
      const options = {
        ttl: random.pick([300, 1000, 30_000]),
        wait: random.pick([0, 1, 500, 5000, Number.POSITIVE_INFINITY]),
        renew: random.chance(0.8),
        ...(random.chance(0.3) ? { maxWaiting: random.between(0, 5) } : {}),
        ...(random.chance(0.03) ? { minHold: 50 } : {}),
        ...(random.chance(0.03) ? { lockDelay: 50 } : {}),
        signal: one.giveUp.signal,
      }
      one.isPatient = options.wait === Number.POSITIVE_INFINITY && !('maxWaiting' in options)
      const taken = isExclusive ? locks.acquire(key, options) : locks.readWrite(key).acquireRead(options)
      taken.then(
        (lease) => {
          one.ends += 1
          one.lease = lease
          const earlier = open().filter(
            (other) => other.key === key && other.isPatient && other.number < one.number,
          )
          if (isOrderly && isExclusive && earlier.length > 0)
            wrong.push(`call ${one.number} comes before ${earlier.map(({ number }) => number)}`)
          const others = held().filter((other) => other !== one && other.key === key)
          if (held().includes(one) && others.some((other) => isExclusive || other.isExclusive))
            wrong.push(`call ${one.number} holds ${key} together with ${others.map(({ number }) => number)}`)
          if (evicted.has(lease.id)) return
          if (lease.fence <= (fences.get(key) ?? 0n)) wrong.push(`call ${one.number} has an old fence`)
          if (isExclusive) fences.set(key, lease.fence)
        },
        () => {
          one.ends += 1
        },
      )
    }
    const act = (): void => {
      switch (random.between(0, 11)) {
        case 0:
        case 1:
        case 2:
        case 3:
          return call()
        case 4:
        case 5:
        case 6: {
          const holders = held()
          if (holders.length > 0) void random.pick(holders).lease?.release()
          return
        }
        case 7: {
          const waiting = open()
          if (waiting.length === 0) return
          const one = random.pick(waiting)
          one.isPatient = false
          one.giveUp.abort(new Error('enough'))
          return
        }
        case 8: {
          const { rooms } = store.inspect({ prefix: '', cursor: undefined, count: 10 }) as RoomPage
          const ids = rooms.flatMap((room) =>
            [...room.holders, ...room.queue].map(({ id }) => [room.key, id]),
          )
          if (isOrderly || ids.length === 0 || random.chance(0.7)) return
          const [key = '', id = ''] = random.pick(ids)
          evicted.add(id)
          void random
            .pick(processes)
            .locks.evict(key, id, { reason: 'chance' })
            .catch(() => {})
          return
        }
        case 9:
          void random
            .pick(processes)
            .locks.tryAcquire(random.pick(['a', 'b']), { ttl: 200, renew: false })
            .catch(() => {})
          return
        default:
          return
      }
    }
    let depth = 0
    for (const { locks } of processes)
      for (const name of [
        'requested',
        'queued',
        'acquired',
        'released',
        'lost',
        'timeout',
        'withdrawn',
      ] as const)
        if (!isOrderly && random.chance(0.5))
          locks.on(name, () => {
            if (depth > 3 || random.chance(0.6)) return
            depth += 1
            try {
              act()
              if (random.chance(0.3)) throw new Error('a listener')
            } finally {
              depth -= 1
            }
          })
    for (let step = 0; step < 150; step += 1) {
      for (let times = random.between(1, 4); times > 0; times -= 1) act()
      if (random.chance(0.02)) void random.pick(processes.slice(1)).locks.close()
      if (!isOrderly && random.chance(0.05)) clock.block(random.between(0, 2000))
      await clock.advance(random.pick([0, 0, 1, 10, 400]))
    }
    // From now on all holders release, and nobody begins anything.
    depth = 99
    for (const { giveUp } of open().filter(() => random.chance(0.3))) giveUp.abort(new Error('enough'))
    for (let rounds = 0; open().length > 0 && rounds < 1000; rounds += 1) {
      for (const { lease } of held()) await lease?.release()
      await clock.advance(300)
    }
    for (const { lease } of calls) await lease?.release()
    await clock.advance(120_000)
    await settled()
    expect(wrong).toEqual([])
    expect(calls.filter(({ ends }) => ends !== 1)).toEqual([])
    const { rooms } = store.inspect({ prefix: '', cursor: undefined, count: 10 }) as RoomPage
    expect(rooms).toEqual([])
    for (const { engine } of processes)
      expect(engine.counts).toEqual({ waiting: 0, hearing: 0, leases: 0, scheduled: 0 })
    expect(clock.timers.keepingAlive).toBe(0)
    mocked.mockRestore()
    warned.mockRestore()
  },
)
