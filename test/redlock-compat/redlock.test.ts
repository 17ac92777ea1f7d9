import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { lockEvents } from '../../src/index.ts'
import Redlock, {
  type Client,
  ExecutionError,
  type Lock,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
} from '../../src/redlock-compat/index.ts'
import { afterTurns, block } from '../engine/block.ts'
import { errorOf } from '../engine/scene.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../servers/redis-cluster.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { age } from '../stores/redlock/masters.ts'

let servers: RedisServer[]
let cluster: RedisCluster

beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: 3 }, () => startRedis()))
  // Servers that have just started vote only when the longest duration has passed. The original redlock does not wait
  // for that, so the servers are made old.
  await Promise.all(servers.map(age))
  cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
})
afterAll(async () => {
  await Promise.all([...servers, cluster].map((server) => server.close()))
})

function clientOf(url: string): Client {
  const client = new Redis(url)
  client.on('error', () => {})
  return client
}

function clusterClient(): Client {
  const nodes = cluster.url.replace(/^.*:\/\//, '').split(',')
  const client = new Cluster(nodes.map((node) => `redis://${node}`))
  client.on('error', () => {})
  return client
}

/**
 * A `Redlock` of its own clients, which ends with the test. The default retry window of two seconds is too short for a busy
 * machine.
 */
function redlockOn(where: number | 'cluster', settings?: Partial<Settings>): Redlock {
  const clients =
    where === 'cluster' ? [clusterClient()] : servers.slice(0, where).map(({ url }) => clientOf(url))
  const redlock = new Redlock(clients, { retryCount: 300, ...settings })
  onTestFinished(() => redlock.quit())
  return redlock
}

function onceQueued(): Promise<void> {
  return new Promise((resolve) => {
    const stop = lockEvents.on('queued', () => {
      stop()
      resolve()
    })
  })
}

let names = 0
function resource(): string {
  names += 1
  return `{redlock}${names}`
}

// These tests follow those of redlock 5 (src/single.test.ts and src/multi.test.ts of its repository).
describe.each([
  ['one server', 1, 1],
  ['three servers', 3, 3],
  ['a cluster', 'cluster', 1],
] as const)('with %s', (_, where, count) => {
  function redlock(settings?: Partial<Settings>): Redlock {
    return redlockOn(where, settings)
  }

  test('acquires, extends, and releases a single lock', async () => {
    const own = redlock()
    const name = resource()
    let lock = await own.acquire([name], 8000)
    expect(lock.expiration).toBeGreaterThan(Date.now() + 4000)
    expect(lock.expiration).toBeLessThanOrEqual(Date.now() + 8000)
    expect(lock.expiration % 1).toBe(0)
    const { value } = lock
    const before = lock
    lock = await lock.extend(20_000)
    expect(before.expiration).toBe(0)
    expect(lock.value).toBe(value)
    expect(lock.expiration).toBeGreaterThan(Date.now() + 10_000)
    await lock.release()
    expect(lock.expiration).toBe(0)
    const again = await redlock({ retryCount: 0 }).acquire([name], 30_000)
    expect(again.leases.fence(name)).toBeGreaterThan(lock.leases.fence(name))
    await again.release()
  })

  test('acquires, extends, and releases a multi-resource lock', async () => {
    const [own, other] = [redlock(), redlock({ retryCount: 0 })]
    const [one, two] = [resource(), resource()]
    let lock = await own.acquire([two, one], 30_000)
    expect(lock.resources).toEqual([two, one])
    expect(await errorOf(other.acquire([one], 500))).toBeInstanceOf(ExecutionError)
    expect(await errorOf(other.acquire([two], 500))).toBeInstanceOf(ExecutionError)
    lock = await lock.extend(60_000)
    await lock.release()
    for (const name of [one, two]) await (await other.acquire([name], 30_000)).release()
  })

  test('locks automatically expire', async () => {
    const own = redlock()
    const name = resource()
    const lock = await own.acquire([name], 200)
    const next = await own.acquire([name], 200)
    expect(lock.expiration).toBeLessThanOrEqual(Date.now())
    expect(await errorOf(lock.extend(500))).toBeInstanceOf(ExecutionError)
    await lock.release()
    await next.release()
  })

  test('individual locks are exclusive, and a waiter is told within its retry window', async () => {
    const own = redlock({ retryCount: 5, retryDelay: 1000 })
    const name = resource()
    // The first answer of a server may take a while.
    const lock = await own.acquire([name], 120_000, { retryCount: 200 })
    const events: unknown[] = []
    own.on('error', (error) => events.push(error))
    const since = performance.now()
    const error = (await errorOf(own.acquire([name], 1000))) as unknown as ExecutionError
    expect(performance.now() - since).toBeGreaterThan(4900)
    // The lock would expire only much later.
    expect(performance.now() - since).toBeLessThan(60_000)
    expect(error).toBeInstanceOf(ExecutionError)
    expect(error.message).toBe('The operation was unable to achieve a quorum during its retry window.')
    expect(error.attempts).toHaveLength(6)
    for (const attempt of error.attempts) {
      const { membershipSize, quorumSize, votesFor, votesAgainst } = await attempt
      expect([membershipSize, quorumSize, votesFor.size]).toEqual([count, Math.floor(count / 2) + 1, 0])
      for (const vote of votesAgainst.values()) {
        expect(vote).toBeInstanceOf(ResourceLockedError)
        expect(vote.message).toBe('The operation was applied to: 0 of the 1 requested resources.')
      }
    }
    expect(events).toEqual([expect.any(ResourceLockedError)])
    await lock.release()
  })

  test('overlapping multi-locks are exclusive, and nothing is kept of the one that fails', async () => {
    const own = redlock({ retryCount: 0 })
    const [one, two, three] = [resource(), resource(), resource()]
    const lock = await own.acquire([one, two], 60_000)
    expect(await errorOf(own.acquire([two, three], 1000))).toBeInstanceOf(ExecutionError)
    await (await own.acquire([three], 30_000)).release()
    await lock.release()
  })

  test('a multi-resource lock lasts for its duration from the moment at which all are free', async () => {
    const own = redlock()
    const [one, two] = [`${resource()}a`, `${resource()}b`]
    const other = await own.acquire([two], 60_000)
    const queued = onceQueued()
    const waiting = own.acquire([one, two], 10_000)
    await queued
    await sleep(6000)
    await other.release()
    const lock = await waiting
    expect(lock.leases.remainingMs).toBeGreaterThan(6000)
    await lock.release()
  })

  test('a waiter is served in the moment of the release, in order', async () => {
    // A waiter that asked over and over would come half a minute later.
    const own = redlock({ retryCount: 2, retryDelay: 30_000 })
    const name = resource()
    const lock = await own.acquire([name], 60_000)
    const order: number[] = []
    const waiting: Promise<unknown>[] = []
    for (const at of [1, 2, 3]) {
      const queued = onceQueued()
      waiting.push(
        own.acquire([name], 60_000).then(async (next) => {
          order.push(at)
          await next.release()
        }),
      )
      await queued
    }
    await lock.release()
    await Promise.all(waiting)
    // Several servers keep the order only by best effort.
    expect(count === 1 ? order : order.sort()).toEqual([1, 2, 3])
  })

  test('the `using` helper acquires, extends, and releases locks', async () => {
    const [own, other] = [redlock(), redlock({ retryCount: 0 })]
    const name = resource()
    const value = await own.using([name], 6000, { automaticExtensionThreshold: 100 }, async (signal) => {
      await sleep(6500)
      expect(signal.aborted).toBe(false)
      expect(signal.error).toBeUndefined()
      expect(await errorOf(other.acquire([name], 300))).toBeInstanceOf(ExecutionError)
      return 'worked'
    })
    expect(value).toBe('worked')
    await (await other.acquire([name], 30_000)).release()
  })

  test('the `using` helper is exclusive', async () => {
    const own = redlock({ retryCount: -1 })
    const name = resource()
    let inside = 0
    const routine = async (signal: RedlockAbortSignal) => {
      inside += 1
      expect(inside).toBe(1)
      await sleep(100)
      expect(signal.aborted).toBe(false)
      inside -= 1
    }
    await Promise.all([own.using([name], 30_000, routine), own.using([name], 30_000, routine)])
  })

  test('the `using` helper passes on the error of its routine', async () => {
    const own = redlock()
    const broken = new Error('broken')
    expect(await errorOf(own.using([resource()], 300, () => Promise.reject(broken)))).toBe(broken)
  })
})

test('with three servers another holder may have a minority of them, and not a majority', async () => {
  const own = redlockOn(3)
  const name = resource()
  const [second, third] = servers.slice(1).map(({ url }) => {
    const alone = new Redlock([clientOf(url)])
    onTestFinished(() => alone.quit())
    return alone
  })
  const taken = await third?.acquire([name], 60_000)
  const lock = await own.acquire([name], 30_000)
  await (await lock.extend(60_000)).release()
  const taken2 = await second?.acquire([name], 60_000)
  // If the servers do not answer within this window, the error says something else.
  const terms = { retryCount: 1, retryDelay: 5000 }
  const error = (await errorOf(own.acquire([name], 500, terms))) as unknown as ExecutionError
  expect(error).toBeInstanceOf(ExecutionError)
  for (const { votesAgainst } of await Promise.all(error.attempts)) {
    for (const vote of votesAgainst.values()) expect(vote).toBeInstanceOf(ResourceLockedError)
  }
  await taken?.release()
  await taken2?.release()
})

test('with three servers a minority may be away or hang, and a majority not', async () => {
  const own = redlockOn(3)
  const name = resource()
  servers[2]?.pause()
  try {
    const lock = await own.acquire([name], 30_000)
    await lock.extend(60_000).then((next: Lock) => next.release())
    servers[1]?.pause()
    const error = await errorOf(own.acquire([name], 500, { retryCount: 2 }))
    expect(error).toBeInstanceOf(ExecutionError)
    expect(error.cause).toMatchObject({ name: expect.stringMatching(/StoreError|AcquireTimeoutError/) })
  } finally {
    servers[1]?.resume()
    servers[2]?.resume()
  }
})

test('fails with an ExecutionError where the server is not there', async () => {
  const gone = await startRedis()
  const redlock = new Redlock([clientOf(gone.url)], { retryCount: 1 })
  await gone.close()
  const error = await errorOf(redlock.acquire([resource()], 500))
  expect(error).toBeInstanceOf(ExecutionError)
  expect(error.cause).toMatchObject({ code: 'store-unavailable' })
  // The client cannot say goodbye to a server that is away.
  await redlock.quit().catch(() => {})
  for (const client of redlock.clients) (client as unknown as Redis).disconnect()
})

test('the signal of `using` has aborted when a listener of `error` is told why', async () => {
  const own = redlockOn(1)
  const name = resource()
  const seen: boolean[] = []
  let signal: RedlockAbortSignal | undefined
  own.on('error', () => seen.push(signal?.aborted === true))
  const using = own.using([name], 600, async (its) => {
    signal = its
    block(1500)
    await until('it is lost', () => its.aborted)
  })
  expect(await errorOf(using)).toBeInstanceOf(ExecutionError)
  expect(seen[0]).toBe(true)
})

test('the signal of `using` aborts when the lock is lost, with the error that redlock puts there', async () => {
  const server = await startRedis()
  const redlock = new Redlock([clientOf(server.url)])
  let aborted: RedlockAbortSignal | undefined
  const losing = errorOf(
    redlock.using([resource()], 500, async (signal) => {
      aborted = signal
      await server.pause()
      await until('the signal aborts', () => signal.aborted)
    }),
  )
  const error = await losing
  expect(error).toBeInstanceOf(ExecutionError)
  expect(aborted?.error).toBe(error)
  expect(aborted?.reason).toBe(error)
  expect(error.cause).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  server.resume()
  await redlock.quit()
  await server.close()
})

test('`using` does not begin its routine under a lock that ended while the event loop stood still', async () => {
  const own = redlockOn(1)
  // The loop tries every point between the grant and the routine.
  for (let turns = 0; turns < 16; turns += 1) {
    const name = resource()
    let isLost = false
    const stopBlocking = lockEvents.on('acquired', ({ key }) => {
      if (key !== name) return
      afterTurns(turns, () => {
        block(100)
        isLost = true
      })
    })
    let hasBegun = false
    const using = own.using([name], 100, async () => {
      hasBegun = true
      expect(isLost).toBe(false)
    })
    const error = await using.then(() => undefined, String)
    stopBlocking()
    // With many turns the routine comes first.
    if (turns < 3) expect(error).toMatch(/Its deadline passed/)
    if (!hasBegun) expect(error).toMatch(/Its deadline passed/)
    else expect(error ?? '').not.toMatch(/Assertion/)
  }
})

test('fails in time where the client neither connects nor tries again', async () => {
  const gone = await startRedis()
  await gone.close()
  const client = new Redis(gone.url, {
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    retryStrategy: () => null,
    reconnectOnError: () => false,
  })
  client.on('error', () => {})
  const redlock = new Redlock([client], { retryDelay: 50 })
  const duration = Math.floor(Number.MAX_SAFE_INTEGER / 10)
  const error = (await errorOf(redlock.acquire([resource()], duration))) as unknown as ExecutionError
  expect(error).toBeInstanceOf(ExecutionError)
  expect(error.message).toMatch(
    /^The operation was unable to achieve a quorum during its retry window\. .* Nothing listens at 127\.0\.0\.1:/,
  )
  expect(error.attempts).toHaveLength(11)
  for (const { votesFor, votesAgainst } of await Promise.all(error.attempts)) {
    expect([votesFor.size, votesAgainst.size]).toEqual([0, 1])
    for (const vote of votesAgainst.values()) {
      expect(vote).toMatchObject({ name: 'StoreError', code: 'store-unavailable' })
    }
  }
  await redlock.quit().catch(() => {})
})

test('makes no connection more for each Redlock of the same clients, whatever their order', async () => {
  const clients = servers.map(({ url }) => clientOf(url))
  const [first] = clients as [Client]
  const connected = async (): Promise<number> =>
    Number(/^connected_clients:(\d+)/m.exec(String(await servers[0]?.command('INFO', 'clients')))?.[1])
  const take = async (redlock: Redlock): Promise<void> => {
    await (await redlock.acquire([resource()], 5000)).release()
  }
  const [one, three] = [new Redlock([first]), new Redlock(clients)]
  for (const redlock of [one, three]) await take(redlock)
  const before = await connected()
  for (let round = 0; round < 50; round += 1) {
    await take(new Redlock([first]))
    await take(new Redlock(round % 2 === 0 ? clients : [...clients].reverse()))
  }
  expect(await connected()).toBe(before)
  await one.quit()
  // Its own are not ended by those of one of them.
  await take(three)
  await new Redlock(clients).quit().catch(() => {})
  expect(await errorOf(take(three))).toBeInstanceOf(ExecutionError)
})

test('a Redlock that is made after a `quit()` begins anew', async () => {
  const client = clientOf((servers[0] as RedisServer).url)
  await new Redlock([client]).quit()
  const again = new Redlock([client])
  await (await again.acquire([resource()], 5000)).release()
  await again.quit().catch(() => {})
})

test.each<[string, Partial<Settings>]>([
  ['without an end', { retryCount: Number.POSITIVE_INFINITY, retryDelay: 0 }],
  ['for longer than any timer', { retryCount: 1e9 }],
  ['without an end, by the number for it', { retryCount: -1, retryDelay: 0 }],
])('waits %s', async (_, settings) => {
  const own = redlockOn(1)
  const name = resource()
  const lock = await own.acquire([name], 30_000)
  const waiting = own.acquire([name], 30_000, settings)
  await lock.release()
  const next = await waiting
  expect(next.leases.fence(name)).toBeGreaterThan(lock.leases.fence(name))
  await next.release()
})

test('takes a duration that no timer can be set for as the longest there is', async () => {
  const own = redlockOn(1)
  const name = resource()
  const duration = Math.floor(Number.MAX_SAFE_INTEGER / 10)
  const lock = await own.acquire([name], duration)
  // 24 days, less the allowance of every deadline.
  const soonest = Date.now() + 23 * 86_400_000
  expect(lock.expiration).toBeGreaterThan(soonest)
  const extended = await lock.extend(3 * duration)
  expect(extended.expiration).toBeGreaterThan(soonest)
  await extended.release()
  await (await redlockOn(1).acquire([name], 30_000)).release()
})

test('does not wait where it may not retry, however long the delay between retries', async () => {
  const own = redlockOn(1, { retryCount: 0, retryDelay: Number.POSITIVE_INFINITY })
  const name = resource()
  const lock = await own.acquire([name], 30_000)
  expect(await errorOf(own.acquire([name], 500))).toMatchObject({ attempts: { length: 1 } })
  await lock.release()
})

test('an extension fails when its retry window is over, and the servers have not answered', async () => {
  const server = await startRedis()
  onTestFinished(() => server.close())
  const own = new Redlock([clientOf(server.url)], { retryCount: 2, retryDelay: 300 })
  const lock = await own.acquire([resource()], 30_000)
  await server.pause()
  const since = performance.now()
  const error = (await errorOf(lock.extend(60_000))) as unknown as ExecutionError
  expect(performance.now() - since).toBeGreaterThan(550)
  expect(performance.now() - since).toBeLessThan(10_000)
  expect(error).toBeInstanceOf(ExecutionError)
  expect(error.message).toBe(
    'The operation was unable to achieve a quorum during its retry window. The servers did not confirm the extension within 600 ms.',
  )
  lock.leases.assertHeld()
  server.resume()
  await lock.release()
  await own.quit()
})

test('takes settings that are null for none, as redlock does', async () => {
  const own = redlockOn(1)
  const lock = await own.acquire([resource()], 1000, null as never)
  expect(await own.release(lock, null as never)).toEqual({ attempts: [] })
})

describe('the style of redlock 4', () => {
  const callback = () => expect.unreachable()
  test.each<[string, (redlock: Redlock, lock: Lock) => unknown]>([
    ['redlock.acquire', (redlock) => redlock.acquire(['r'], 500, callback as never)],
    ['redlock.release', (redlock, lock) => redlock.release(lock, callback as never)],
    ['redlock.extend', (redlock, lock) => redlock.extend(lock, 500, callback as never)],
    ['lock.release', (_, lock) => (lock.release as (one: unknown) => unknown).call(lock, callback)],
    ['lock.extend', (_, lock) => (lock.extend as (...all: unknown[]) => unknown).call(lock, 500, callback)],
    ['redlock.quit', (redlock) => (redlock.quit as (one: unknown) => unknown).call(redlock, callback)],
    ['redlock.lock', (redlock) => (redlock as unknown as Old).lock('r', 500, callback)],
    ['redlock.unlock', (redlock, lock) => (redlock as unknown as Old).unlock(lock, callback)],
    ['redlock.disposer', (redlock) => (redlock as unknown as Old).disposer('r', 500, callback)],
    ['lock.unlock', (_, lock) => (lock as unknown as Old).unlock(callback)],
  ])('is refused by %s', async (_, call) => {
    const own = redlockOn(1)
    const lock = await own.acquire([resource()], 1000)
    const error = await errorOf((async () => call(own, lock))())
    expect(error).toMatchObject({ code: 'invalid-argument', message: expect.stringContaining('redlock 5') })
    lock.leases.assertHeld()
    await lock.release()
  })

  type Old = Readonly<Record<'lock' | 'unlock' | 'disposer', (...args: readonly unknown[]) => unknown>>
})

describe('with bad input', () => {
  const never = (() => expect.unreachable()) as never
  test.each<[string, (redlock: Redlock) => Promise<unknown>]>([
    ['got a function: since redlock 5', (redlock) => redlock.acquire(['r'], 500, never)],
    ['Expected `resources` to be an array of names', (redlock) => redlock.acquire('r' as never, 500)],
    ['Expected `resources` to be an array of names', (redlock) => redlock.acquire([], 500)],
    // In the words of redlock, which its own tests expect.
    ['Duration must be an integer value in milliseconds.', (redlock) => redlock.acquire(['r'], 0.5)],
    ['Duration must be an integer value in milliseconds.', (redlock) => redlock.using(['r'], 0.5, never)],
    ['Expected `duration` to be 50 ms or more, got 49', (redlock) => redlock.acquire(['r'], 49)],
    [
      'Duration must be an integer value in milliseconds.',
      (redlock) => redlock.acquire(['r'], '5s' as never),
    ],
    [
      'Expected `retryCount` to be -1 or a number from 0, got -2.',
      (redlock) => redlock.acquire(['r'], 500, { retryCount: -2 }),
    ],
    [
      'Expected `retryCount` to be -1 or a number from 0, got -0.5.',
      (redlock) => redlock.acquire(['r'], 500, { retryCount: -0.5 }),
    ],
    ['Expected the last argument to be a function', (redlock) => redlock.using(['r'], 500, {} as never)],
    ['Expected a lock that `acquire`', (own: Redlock) => own.release({ value: 'id' } as unknown as Lock)],
    ['Expected a lock that `acquire`', (own: Redlock) => own.extend({} as Lock, 1000)],
  ])('says %s', async (message, call) => {
    const error = await errorOf(call(redlockOn(1)))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(message)
  })

  test('takes an empty object of scripts', async () => {
    const client = clientOf(servers[0]?.url ?? '')
    onTestFinished(async () => void (await client.quit()))
    const make = Redlock as unknown as new (...args: readonly unknown[]) => Redlock
    expect(new make([client], {}, {}).clients).toEqual(new Set([client]))
  })

  test('says that several clusters are no quorum', async () => {
    const clients = [clusterClient(), clusterClient(), clusterClient()]
    expect(() => new Redlock(clients)).toThrow(/^Expected each of `clients` to be a `R/)
    await Promise.all(clients.map((client) => client.quit()))
  })

  test.each<[string, readonly unknown[]]>([
    ['Expected `clients` to be an array', []],
    ['Redlock must be instantiated with at least one redis client.', [[]]],
    ['Expected no scripts of your own', [[{}], {}, { acquireScript: () => '' }]],
    ['Expected `retryDelay` to be a number', [[{}], { retryDelay: '200ms' }]],
    ['Expected `settings` to be an object, got x.', [[{}], 'x']],
    ['Expected `client`', [[{}]]],
    ['Expected `client`', [[{}], null]],
  ])('says %s when it is made', (message, args) => {
    const make = Redlock as unknown as new (...args: readonly unknown[]) => Redlock
    expect(() => new make(...args)).toThrow(message)
  })
})
