import { connect, isHoldfastError, type Lease, type LeaseSet } from '../../src/index.ts'
import type { Client, Held, Kind, Library, Place } from '../library.ts'

/** This library. */
export const holdfast: readonly Library[] = [
  on('redis', ({ ports: [port] }) => `redis://127.0.0.1:${port}`),
  on('redlock', ({ ports }) => `redlock:${ports.map((port) => `redis://127.0.0.1:${port}`).join(',')}`),
  on('etcd', ({ ports: [port] }) => `etcd://127.0.0.1:${port}`),
  on('memory', () => 'memory:'),
]

function on(kind: Kind, urlOf: (place: Place) => string): Library {
  return {
    name: 'holdfast',
    kind,
    settings: 'its defaults',
    open: (place) => open(urlOf(place), place.ttlMs),
  }
}

async function open(url: string, ttlMs: number): Promise<Client> {
  const locks = await connect(url, { ttl: ttlMs })
  return {
    acquire: (key, waitMs) => inTime(async () => heldBy(await locks.acquire(key, { wait: waitMs }))),
    hold: (key, work) => locks.withLock(key, ({ signal }) => work(signal)),
    acquireAll: async (keys) => heldBy(await locks.acquireAll(keys)),
    acquireUnits: ({ key, limit, count, waitMs }) =>
      inTime(async () => heldBy(await locks.semaphore(key, limit).acquire({ units: count, wait: waitMs }))),
    close: () => locks.close(),
  }
}

async function inTime(acquire: () => Promise<Held>): Promise<Held | null> {
  try {
    return await acquire()
  } catch (error) {
    if (isHoldfastError(error, 'acquire-timeout')) return null
    throw error
  }
}

function heldBy(lease: Lease | LeaseSet): Held {
  return {
    lost: lease.signal,
    async release() {
      await lease.release()
    },
  }
}
