import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Ticket } from '../../src/contract/store.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { createPartition, type PartitionChange } from '../../src/partition/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { until } from '../servers/until.ts'
import { Fleet } from './fleet.ts'

/** For leases that are to run out by themselves. Longer than a busy machine keeps this process from a renewal. */
const TTL = '4s'

describe('a partition', () => {
  test('divides the keys evenly, and moves no more of them than a change needs', async () => {
    const fleet = new Fleet(100)
    fleet.add('a')
    await fleet.settled([100])
    let before = fleet.deeds.length
    fleet.add('b')
    await fleet.settled([50, 50])
    expect(fleet.startsSince(before)).toBe(50)

    before = fleet.deeds.length
    fleet.add('c')
    await fleet.settled([34, 33, 33])
    expect(fleet.startsSince(before)).toBe(33)

    before = fleet.deeds.length
    await fleet.remove('a')
    await fleet.settled([50, 50])
    expect(fleet.startsSince(before)).toBe(34)
    fleet.checkOneAtATime()
    expect(fleet.errors).toEqual([])
  })

  test('a rolling deploy of five keeps the balance, and each new process costs its own share only', async () => {
    const fleet = new Fleet(100)
    for (const who of ['a1', 'b1', 'c1', 'd1', 'e1']) fleet.add(who)
    await fleet.settled([20, 20, 20, 20, 20])
    const before = fleet.deeds.length
    for (const who of ['a', 'b', 'c', 'd', 'e']) {
      await fleet.remove(`${who}1`)
      await fleet.settled([25, 25, 25, 25])
      fleet.add(`${who}2`)
      await fleet.settled([20, 20, 20, 20, 20])
    }
    // The least: 20 keys of each process that leaves, and 20 for each process that comes.
    expect(fleet.startsSince(before)).toBe(200)
    fleet.checkOneAtATime()
    expect(fleet.errors).toEqual([])
  })

  test('many processes that come and go at the same time end balanced', async () => {
    const fleet = new Fleet(100)
    const names = Array.from({ length: 12 }, (_, at) => `m${at}`)
    for (const who of names) fleet.add(who)
    await Promise.all(names.slice(0, 7).map((who) => fleet.remove(who)))
    await fleet.settled([20, 20, 20, 20, 20])
    fleet.checkOneAtATime()
  })

  test('gives weights their share, also when they change, and shows who has what', async () => {
    const fleet = new Fleet(90)
    const one = fleet.add('one', { weight: 1 })
    fleet.add('two', { weight: 2 })
    await fleet.settled([30, 60])
    await until('both have told', async () => {
      const members = await one.members()
      return members.every(
        ({ weight, keys, owner }) => keys.length === weight * 30 && owner.label !== undefined,
      )
    })
    await one.setWeight(0)
    await fleet.settled([0, 90])
    await one.setWeight(4)
    await fleet.settled([60, 30])
    fleet.checkOneAtATime()
  })

  test('starts a key when the stop of its last holder has ended, and hands over a few keys at a time', async () => {
    const fleet = new Fleet(40)
    let [stopping, most] = [0, 0]
    const stop = async () => {
      stopping += 1
      most = Math.max(most, stopping)
      await new Promise((resolve) => setTimeout(resolve, 5))
      stopping -= 1
    }
    fleet.add('a', { movesAtOnce: 3 }, { stop })
    await fleet.settled([40])
    fleet.add('b')
    await fleet.settled([20, 20])
    await fleet.remove('a')
    await fleet.settled([40])
    fleet.checkOneAtATime()
    expect(most).toBe(3)
  })

  test('stop ends the work on all keys at the same time once grace is over, and does not wait for work that hangs', async () => {
    const fleet = new Fleet(20)
    fleet.add('a', { movesAtOnce: 2, grace: 100, ttl: TTL }, { stop: () => new Promise(() => {}) })
    await fleet.settled([20])
    await fleet.remove('a')
    // The leases run out by themselves.
    fleet.add('b')
    await fleet.settled([20])
    expect(fleet.errors.filter(({ who, during }) => who === 'a' && during === 'stop')).toHaveLength(20)
  })

  test('works outside of the async context in which it was started', async () => {
    const fleet = new Fleet(4)
    const context = new AsyncLocalStorage<string>()
    const seen: (string | undefined)[] = []
    const see = () => seen.push(context.getStore())
    context.run('a request', () => fleet.add('a', {}, { start: see, stop: see }))
    await fleet.settled([4])
    fleet.add('b')
    await fleet.settled([2, 2])
    expect(seen).toEqual(Array.from({ length: 6 }, () => undefined))
  })

  test('work that hangs does not keep the other keys from moving', async () => {
    const fleet = new Fleet(12)
    const hung = new Set<string>()
    const stop = (key: string) => {
      if (hung.size === 2) return
      hung.add(key)
      return new Promise(() => {})
    }
    const a = fleet.add('a', { movesAtOnce: 2, grace: 100, ttl: TTL }, { stop })
    await fleet.settled([12])
    fleet.add('b')
    await until('two hang', () => hung.size === 2)
    await a.setWeight(0)
    await fleet.settled([0, 12])
    expect(fleet.errors.map(({ during }) => during)).toEqual(['stop', 'stop'])
  })

  test('keeps its farewell when its weight is set while it stops', async () => {
    const fleet = new Fleet(4)
    const a = fleet.add('a', { grace: 2000, ttl: TTL }, { stop: () => new Promise(() => {}) })
    await fleet.settled([4])
    const b = fleet.add('b')
    const saysFarewell = async () => (await b.members()).some(({ weight }) => weight === 0)
    const stopped = a.stop()
    await until('a says farewell', saysFarewell)
    await a.setWeight(3)
    expect(await saysFarewell()).toBe(true)
    await stopped
  })

  test.each(['its farewell', 'its claims'])(
    'stops within seconds when the store does not answer it as it tells %s',
    async (news) => {
      const fleet = new Fleet(4)
      let told: number | undefined
      const network = new (class extends ScriptedStore {
        override acquire(ticket: Ticket) {
          if (told === undefined || !ticket.key.endsWith('#members')) return super.acquire(ticket)
          told += 1
          return new Promise<never>(() => {})
        }
      })(fleet.store)
      const a = fleet.add('a', { grace: 100 }, {}, network)
      await fleet.settled([4])
      told = 0
      if (news === 'its claims') {
        fleet.add('b')
        await until('it tells them', () => told === 1)
      }
      const startedAt = performance.now()
      await a.stop()
      expect(performance.now() - startedAt).toBeLessThan(10_000)
      expect(told).toBeGreaterThan(0)
    },
  )

  test('a weight that is set while it joins is known to the others when setWeight resolves', async () => {
    const fleet = new Fleet(2)
    let asked = false
    let join: () => void = () => {}
    const joins = new Promise<void>((resolve) => {
      join = resolve
    })
    const network = new (class extends ScriptedStore {
      override async acquire(ticket: Ticket) {
        if (ticket.key.endsWith('#members')) {
          asked = true
          await joins
        }
        return super.acquire(ticket)
      }
    })(fleet.store)
    const a = fleet.add('a', {}, {}, network)
    await until('it joins', () => asked)
    const set = a.setWeight(0)
    setImmediate(join)
    await set
    expect((await a.members()).map(({ weight }) => weight)).toEqual([0])
  })

  test('a start that throws is told, and tried again', async () => {
    const fleet = new Fleet(3)
    let failures = 0
    const start = ({ key }: { key: string }) => {
      if (key !== 'k1' || failures === 2) return
      failures += 1
      throw new Error('not yet')
    }
    const a = fleet.add('a', {}, { start })
    const changes: PartitionChange<string>[] = []
    const end = a.subscribe((change) => changes.push(change))
    await until('k1 works', () => changes.some(({ key, to }) => key === 'k1' && to === 'working'))
    expect(fleet.errors).toEqual([
      { who: 'a', key: 'k1', during: 'start' },
      { who: 'a', key: 'k1', during: 'start' },
    ])
    end()
    const heard = changes.length
    await fleet.remove('a')
    expect(changes).toHaveLength(heard)
  })

  test('a key whose work could not start goes to another process, comes back, and goes again', async () => {
    const fleet = new Fleet(2)
    let isBroken = true
    const start = () => {
      if (isBroken) throw new Error('not yet')
    }
    const a = fleet.add('a', { backoff: '10m', maxBackoff: '10m' }, { start })
    await until('both pause', () => fleet.errors.length === 2 && a.held.size === 0)
    let left = 0
    a.subscribe(({ to }) => {
      if (to === 'stopped') left += 1
    })
    fleet.add('b')
    await a.setWeight(0)
    await until('it has left both keys to the other', () => left === 2)
    await fleet.settled([0, 2])
    isBroken = false
    await a.setWeight(1)
    await fleet.remove('b')
    await fleet.settled([2])
    fleet.add('c')
    await fleet.settled([1, 1])
  })

  test('work that says that it failed is stopped, and started again', async () => {
    const fleet = new Fleet(2)
    const failed: string[] = []
    fleet.add(
      'a',
      {},
      {
        start: ({ key, fail }) => {
          if (failed.length > 0) return
          failed.push(key)
          fail(new Error('broke'))
        },
      },
    )
    await until('it started again', () => fleet.startsSince(0) === 3)
    fleet.checkOneAtATime()
    expect(fleet.errors).toMatchObject([{ during: 'work', key: failed[0] }])
  })

  test('a key whose work failed and does not end goes to another process, and is divided again when it has ended', async () => {
    const fleet = new Fleet(4)
    const options = { ttl: TTL, grace: 100 }
    let failing: { readonly key: string; readonly fail: (error: unknown) => void } | undefined
    let end = () => {}
    const hanging = new Promise<void>((resolve) => {
      end = resolve
    })
    fleet.add('a', options, {
      start: (term) => {
        failing = term
      },
      stop: (key) => (key === failing?.key ? hanging : undefined),
    })
    const b = fleet.add('b', options)
    await fleet.settled([2, 2])
    await until('a told its claims', async () => (await b.members()).every(({ keys }) => keys.length === 2))
    const { key = '', fail } = failing ?? {}
    const before = fleet.deeds.length
    fail?.(new Error('broke'))
    await until('b has the key', () => b.held.has(key))
    await fleet.settled([1, 3])
    expect(fleet.startsSince(before)).toBe(1)
    end()
    await fleet.settled([2, 2])
    expect(fleet.startsSince(before)).toBe(2)
    expect(fleet.errors).toEqual([
      { who: 'a', key, during: 'work' },
      { who: 'a', key, during: 'stop' },
    ])
  })

  test('the loss of a key ends its work in time, and the key comes back', async () => {
    const fleet = new Fleet(4)
    let lost: AbortSignal | undefined
    const a = fleet.add(
      'a',
      {},
      {
        start: ({ key, signal }) => {
          if (key === 'k2') lost ??= signal
        },
      },
    )
    await fleet.settled([4])
    const fence = a.held.get('k2')?.fence ?? 0n
    await fleet.locks[0]?.evictAll('fleet:k2', { reason: 'test' })
    await until('the work is told', () => lost?.aborted === true)
    await until('the key is back', () => (a.held.get('k2')?.fence ?? 0n) > fence)
    expect(fleet.errors).toMatchObject([{ during: 'hold', key: 'k2' }])
    fleet.checkOneAtATime()
  })

  test('a process that is evicted from the group joins again, and few keys move', async () => {
    const fleet = new Fleet(40)
    fleet.add('a')
    fleet.add('b')
    await fleet.settled([20, 20])
    const before = fleet.deeds.length
    const [locks] = fleet.locks
    for await (const { key } of locks?.inspect({ prefix: 'fleet#' }) ?? []) {
      if (key.endsWith('#members')) await locks?.evictAll(key, { reason: 'test' })
    }
    await until('both were told', () => new Set(fleet.errors.map(({ who }) => who)).size === 2)
    await until('both are back', async () => (await fleet.members.get('a')?.members())?.length === 2)
    await fleet.settled([20, 20])
    fleet.checkOneAtATime()
    expect(fleet.startsSince(before)).toBeLessThanOrEqual(40)
  })

  test('a process that cannot reach the store loses its keys to the others, and takes its share again', async () => {
    const fleet = new Fleet(20)
    fleet.add('a')
    const network = new ScriptedStore(fleet.store)
    const b = fleet.add('b', { ttl: '2s' }, {}, network)
    await fleet.settled([10, 10])
    network.always('fail')
    await until('a has all keys', () => fleet.members.get('a')?.held.size === 20)
    expect(b.held.size).toBe(0)
    network.always('answer')
    await fleet.settled([10, 10])
    fleet.checkOneAtATime()
  })

  test('processes with another list of keys share the keys that both have, one holder each', async () => {
    const fleet = new Fleet(10)
    fleet.add('old')
    await fleet.settled([10])
    const next = fleet.add('new', { keys: [...fleet.keys, 'k10', 'k11'] })
    await until('it has the new keys', () => next.held.size === 2)
    await fleet.remove('old')
    await fleet.settled([12])
    fleet.checkOneAtATime()
  })

  test('ends with its locks', async () => {
    const fleet = new Fleet(5)
    const a = fleet.add('a')
    await fleet.settled([5])
    await fleet.locks[0]?.close()
    await until('it holds nothing', () => a.held.size === 0)
    await a.stop()
    expect(() => a.start()).toThrow('Expected a partition that was not stopped')
  })

  test('may be stopped before it was started, while it joins, and twice', async () => {
    const fleet = new Fleet(5)
    const locks = createLocks(fleet.store)
    onTestFinished(() => locks.close())
    const idle = createPartition(locks, 'fleet', { keys: ['k0'], start() {}, stop() {} })
    await idle.setWeight(2)
    await idle.stop()
    expect(() => idle.start()).toThrow('was not stopped')
    const network = new ScriptedStore(fleet.store)
    network.always('lose request')
    const joining = fleet.add('joining', { grace: 100 }, {}, network)
    joining.start()
    const set = joining.setWeight(2)
    await Promise.all([joining.stop(), joining.stop(), set])
  })
})

test('numbers ids in a way that never changes, and holds numbers', async () => {
  const locks = createLocks(memoryStore())
  const started: number[] = []
  const stopped: number[] = []
  const partition = createPartition(locks, 'customers', {
    partitions: 64,
    start: ({ key }) => started.push(key),
    stop: ({ key }) => stopped.push(key),
  })
  expect(['', 'hello', 'customer 42', 'ü'].map((id) => partition.of(id))).toEqual([0, 7, 57, 42])
  expect(() => partition.of(42 as never)).toThrow('Expected `id` to be a text')
  partition.start()
  await until('it has all', () => partition.held.size === 64)
  expect(partition.held.get(partition.of('hello'))?.key).toBe('customers:7')
  await partition[Symbol.asyncDispose]()
  expect(started.sort((a, b) => a - b)).toEqual(Array.from({ length: 64 }, (_, number) => number))
  expect(stopped.sort((a, b) => a - b)).toEqual(started)
  await locks.close()
})

test.each<[string, (locks: Locks) => unknown]>([
  ['Expected `locks` to be', () => createPartition({} as never, 'n', { keys: ['a'], start() {}, stop() {} })],
  ['Expected `name` to be', (locks) => createPartition(locks, '', { keys: ['a'], start() {}, stop() {} })],
  ['with `keys` or `partitions`', (locks) => createPartition(locks, 'n', undefined as never)],
  [
    'Expected exactly one of `keys` and `partitions`, got both',
    (locks) => createPartition(locks, 'n', { keys: ['a'], partitions: 2, start() {}, stop() {} } as never),
  ],
  ['Expected `keys` to be given', (locks) => createPartition(locks, 'n', { start() {}, stop() {} } as never)],
  [
    'Expected `keys` to be a list',
    (locks) => createPartition(locks, 'n', { keys: [], start() {}, stop() {} }),
  ],
  [
    'Expected `keys` to be a list without',
    (locks) => createPartition(locks, 'n', { keys: ['a', 'a'], start() {}, stop() {} }),
  ],
  [
    'Expected `partitions` to be a whole number from 1 to 4096',
    (locks) => createPartition(locks, 'n', { partitions: 5000, start() {}, stop() {} }),
  ],
  [
    'Expected `key` to have at most',
    (locks) => createPartition(locks, 'n'.repeat(1020), { partitions: 64, start() {}, stop() {} }),
  ],
  ['Expected `start` to be', (locks) => createPartition(locks, 'n', { partitions: 1, stop() {} } as never)],
  [
    'Expected `weight` to be a number from 0',
    (locks) => createPartition(locks, 'n', { partitions: 1, weight: -1, start() {}, stop() {} }),
  ],
  [
    'Expected `movesAtOnce` to be',
    (locks) => createPartition(locks, 'n', { partitions: 1, movesAtOnce: 0, start() {}, stop() {} }),
  ],
  [
    'Expected `backoff` to be',
    (locks) => createPartition(locks, 'n', { partitions: 1, backoff: 'soon', start() {}, stop() {} }),
  ],
  [
    'Expected the options to be among',
    (locks) => createPartition(locks, 'n', { partitions: 1, starts() {} } as never),
  ],
])('says what is wrong: %s', (message, make) => {
  expect(() => make(createLocks(memoryStore()))).toThrow(message)
})
