import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createLocks, isHoldfastError, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import { type Random, seededRandom } from '../../src/testing/random.ts'
import { until } from '../servers/until.ts'
import { type SilentPlace, silentPlaces } from './silent-outage-stores.ts'

interface Place extends AsyncDisposable {
  /** The locks of two processes. */
  readonly processes: readonly Locks[]
  readonly server: SilentPlace | undefined
}

/** Every store, with one client for each. */
const places: Readonly<Record<string, () => Promise<Place>>> = {
  memory: async () => {
    const locks = createLocks(memoryStore())
    return { processes: [locks], server: undefined, [Symbol.asyncDispose]: () => locks.close() }
  },
  sqlite: async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-every-'))
    const processes = [1, 2].map(() => createLocks(sqliteStore(join(folder, 'locks.db'))))
    return {
      processes,
      server: undefined,
      async [Symbol.asyncDispose]() {
        for (const locks of processes) await locks.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
  redis: () => onServer('Redis by ioredis 5 hangs'),
  Sentinel: () => onServer('Redis with Sentinels by ioredis 5 hangs'),
  Cluster: () => onServer('Redis Cluster by ioredis 5 hangs'),
  redlock: () => onServer('Redlock hangs'),
  postgres: () => onServer('PostgreSQL by pg hangs'),
  etcd: () => onServer('etcd hangs'),
}

async function onServer(name: string): Promise<Place> {
  const server = await silentPlaces[name]?.()
  if (server === undefined) throw new Error(`Expected a place by the name ${name}`)
  const processes = [1, 2].map(() => createLocks(server.open()))
  return {
    processes,
    server,
    async [Symbol.asyncDispose]() {
      for (const locks of processes) await locks.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

test.concurrent.for(Object.entries(places))(
  'on %s neither callers that give up, nor sets of keys in any order, nor a short silence cost a lease or leave anything behind',
  async ([name, start]) => {
    const seed = `${name} ${process.env['HOLDFAST_SEED'] ?? Math.floor(Math.random() * 1e9)}`
    const random = seededRandom(seed)
    try {
      await using place = await start()
      await callersGiveUp(place.processes, random)
      await setsOverlap(place.processes, random)
      await nothingLeft(place.processes)
      if (place.server !== undefined) await fallsSilentShortly(place.processes, place.server)
      await nothingLeft(place.processes)
    } catch (error) {
      throw new Error(`Seed: HOLDFAST_SEED=${seed.split(' ')[1]}`, { cause: error })
    }
  },
)

/** They abort at any moment: before their request is sent, while they wait, or in the tick of their grant. */
async function callersGiveUp(processes: readonly Locks[], random: Random): Promise<void> {
  let holders = 0
  const callers = Array.from({ length: 60 }, async (_, index) => {
    const locks = random.pick(processes)
    const giveUp = new AbortController()
    const isPatient = index % 3 === 0
    const afterMs = random.chance(0.2) ? 0 : random.between(0, 120)
    const timer = isPatient ? undefined : setTimeout(() => giveUp.abort(), afterMs)
    try {
      const lease = await locks.acquire('given up', { signal: giveUp.signal, ttl: '2m', wait: '90s' })
      holders += 1
      expect(holders).toBe(1)
      lease.assertHeld()
      await new Promise((resolve) => setTimeout(resolve, random.between(0, 3)))
      lease.assertHeld()
      holders -= 1
      await lease.release()
      return true
    } catch (error) {
      expect(isPatient).toBe(false)
      expect(isHoldfastError(error) || (error as Error).name === 'AbortError', String(error)).toBe(true)
      return false
    } finally {
      clearTimeout(timer)
    }
  })
  const served = await Promise.all(callers)
  expect(served.filter(Boolean).length).toBeGreaterThanOrEqual(20)
  // A grant that nobody took would keep the key for its ttl of two minutes.
  await (await (processes[0] as Locks).acquire('given up', { wait: '30s' })).release()
}

/** Many callers take two or three of five keys in any order. */
async function setsOverlap(processes: readonly Locks[], random: Random): Promise<void> {
  const keys = ['a', 'b', 'c', 'd', 'e'].map((key) => `set:${key}`)
  const taken = new Set<string>()
  const takers = Array.from({ length: 16 }, async () => {
    const wanted = new Set(Array.from({ length: random.between(2, 3) }, () => random.pick(keys)))
    await random.pick(processes).withLocks([...wanted], { wait: '60s' }, async (lease) => {
      for (const key of wanted) {
        expect(taken.has(key)).toBe(false)
        taken.add(key)
      }
      await new Promise((resolve) => setTimeout(resolve, random.between(0, 3)))
      lease.assertHeld()
      for (const key of wanted) taken.delete(key)
    })
  })
  await Promise.all(takers)
}

/** The store is away for a while, and back before the deadline. */
async function fallsSilentShortly([one, other]: readonly Locks[], server: SilentPlace): Promise<void> {
  const lease = await (one as Locks).acquire('silent', { ttl: '24s' })
  const { fence } = lease
  await server.beSilent()
  try {
    await until('the holder knows that a renewal is late', () => lease.state === 'jeopardy', {
      withinMs: 23_000,
    })
  } finally {
    await server.speak()
  }
  await until('it is renewed', () => lease.state === 'held')
  expect(lease.signal.aborted).toBe(false)
  expect(lease.fence).toBe(fence)
  expect(await (other as Locks).tryAcquire('silent')).toBe(null)
  await lease.release()
  const next = await (other as Locks).acquire('silent')
  expect(next.fence > fence).toBe(true)
  await next.release()
}

async function nothingLeft(processes: readonly Locks[]): Promise<void> {
  await until('nothing is left', async () => {
    for await (const { holders, queue } of (processes[0] as Locks).inspect()) {
      if (holders.length + queue.length > 0) return false
    }
    return true
  })
}
