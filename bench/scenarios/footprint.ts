import { Redis } from 'ioredis'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import type { Candidate } from '../scenario.ts'

const COUNT = 10_000

/** Bytes of heap and of the server's memory: per held lease, per waiter, per key that has just been released. */
export const redisFootprint: Candidate = {
  name: 'holdfast on redis',
  async measure({ redisPort }) {
    const client = new Redis({ port: redisPort, host: '127.0.0.1' })
    const locks = createLocks(redisStore(client), { wait: Number.POSITIVE_INFINITY })
    await (await locks.acquire('warm')).release()
    const keys = Array.from({ length: COUNT }, (_, index) => `footprint:${index}`)
    const heapEmpty = heap()
    const serverEmpty = await serverMemory(client)
    const leases = await Promise.all(keys.map((key) => locks.acquire(key)))
    const heapHeld = heap()
    const serverHeld = await serverMemory(client)
    const waiting = keys.map((key) => locks.acquire(key))
    // The store answers in order: when the last one is counted, all of them wait.
    await locks.tryAcquire(keys.at(-1) ?? '')
    const heapWaiting = heap()
    const serverWaiting = await serverMemory(client)
    await Promise.all(leases.map((lease) => lease.release()))
    await Promise.all(waiting.map(async (lease) => (await lease).release()))
    const serverIdle = await serverMemory(client)
    await locks.close()
    client.disconnect()
    return [
      (heapHeld - heapEmpty) / COUNT,
      (heapWaiting - heapHeld) / COUNT,
      (serverHeld - serverEmpty) / COUNT,
      (serverWaiting - serverHeld) / COUNT,
      (serverIdle - serverEmpty) / COUNT,
    ]
  },
}

export const memoryFootprint: Candidate = {
  name: 'holdfast in memory',
  async measure() {
    const locks = createLocks(memoryStore(), { wait: Number.POSITIVE_INFINITY })
    const keys = Array.from({ length: COUNT }, (_, index) => `footprint:${index}`)
    const heapEmpty = heap()
    const leases = await Promise.all(keys.map((key) => locks.acquire(key)))
    const heapHeld = heap()
    const waiting = keys.map((key) => locks.acquire(key))
    const heapWaiting = heap()
    await Promise.all(leases.map((lease) => lease.release()))
    await Promise.all(waiting.map(async (lease) => (await lease).release()))
    // Objects that the caller still holds do not count for the key.
    leases.length = 0
    waiting.length = 0
    const heapIdle = heap()
    await locks.close()
    return [
      (heapHeld - heapEmpty) / COUNT,
      (heapWaiting - heapHeld) / COUNT,
      0,
      0,
      (heapIdle - heapEmpty) / COUNT,
    ]
  },
}

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

async function serverMemory(client: Redis): Promise<number> {
  return Number(/used_memory_dataset:(\d+)/.exec(await client.info('memory'))?.[1])
}
