import { connect, isHoldfastError, type Lease, type LeaseSet } from '../../src/index.ts'
import type { Client, Held, Kind, Place } from '../library.ts'

export async function open(place: Place, kind: Kind): Promise<Client> {
  const locks = await connect(urlOf(place, kind), { ttl: place.ttlMs })
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

function urlOf({ ports }: Place, kind: Kind): string {
  const [first] = ports
  if (kind === 'memory') return 'memory:'
  if (kind === 'redlock') return `redlock:${ports.map((port) => `redis://127.0.0.1:${port}`).join(',')}`
  return `${kind}://127.0.0.1:${first}`
}
