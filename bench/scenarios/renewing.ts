import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import { createLocks, type Lease } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { redisProcessorMs } from '../redis-processor.ts'
import type { Candidate } from '../scenario.ts'

const LEASES = 10_000
const TTL_MS = 6000
const RENEW_EVERY_MS = TTL_MS / 3
const BATCH = 500

/** A process that holds the leases, and renews them by itself. */
interface Holder {
  close(): Promise<void> | void
}

type TakeAll = (client: Redis, keys: readonly string[], listens: boolean) => Promise<Holder>

interface BareLease {
  readonly key: string
  readonly token: string
  readonly loss: AbortController | undefined
}

const RENEW = `
local held = 0
for index = 1, #KEYS do
  if redis.call('GET', KEYS[index]) == ARGV[index + 1] then held = held + redis.call('PEXPIRE', KEYS[index], ARGV[1]) end
end
return held`

/** The baseline: one script per 500 keys, from an array of keys and tokens. */
const takeBare: TakeAll = async (client, keys, listens) => {
  client.defineCommand('renewAll', { lua: RENEW })
  const { renewAll } = client as unknown as { renewAll(...args: (string | number)[]): Promise<number> }
  const held: BareLease[] = []
  await inBatches(keys, (batch) =>
    Promise.all(
      batch.map(async (key) => {
        const loss = listens ? new AbortController() : undefined
        loss?.signal.addEventListener('abort', onLoss)
        const token = `${process.pid}-${held.length}`
        held.push({ key, token, loss })
        await client.set(key, token, 'PX', TTL_MS)
      }),
    ),
  )
  const renewing = setInterval(async () => {
    await inBatches(held, async (batch) => {
      const stillHeld = await renewAll.call(
        client,
        batch.length,
        ...batch.map(({ key }) => key),
        TTL_MS,
        ...batch.map(({ token }) => token),
      )
      if (stillHeld < batch.length) throw new Error('A lease was lost while it was renewed.')
    })
  }, RENEW_EVERY_MS)
  return { close: () => clearInterval(renewing) }
}

const takeHoldfast: TakeAll = async (client, keys, listens) => {
  const locks = createLocks(redisStore(client), { ttl: TTL_MS })
  const held: Lease[] = []
  await inBatches(keys, (batch) =>
    Promise.all(
      batch.map(async (key) => {
        const lease = await locks.acquire(key)
        if (listens) lease.signal.addEventListener('abort', onLoss)
        held.push(lease)
      }),
    ),
  )
  return {
    async close() {
      if (held.some(({ state }) => state !== 'held')) onLoss()
      await inBatches(held, (batch) => Promise.all(batch.map((lease) => lease.release())))
      await locks.close()
    },
  }
}

/** redis-semaphore asks about each lease by itself. It tells of a loss by a callback of the mutex. */
const takeRedisSemaphore: TakeAll = async (client, keys) => {
  const held: Mutex[] = []
  await inBatches(keys, (batch) =>
    Promise.all(
      batch.map(async (key) => {
        const mutex = new Mutex(client, key, {
          lockTimeout: TTL_MS,
          refreshInterval: RENEW_EVERY_MS,
          onLockLost: onLoss,
        })
        held.push(mutex)
        await mutex.acquire()
      }),
    ),
  )
  return { close: () => inBatches(held, (batch) => Promise.all(batch.map((mutex) => mutex.release()))) }
}

function onLoss(): never {
  throw new Error('A lease was lost while it was renewed.')
}

/** The share of a processor in per cent that the process uses, and that the server uses; bytes of heap for each lease. */
function renewing(name: string, takeAll: TakeAll, listens: boolean): Candidate {
  return {
    name,
    async measure({ redisPort }, { quick }) {
      const client = new Redis({ port: redisPort, host: '127.0.0.1' })
      const probe = new Redis({ port: redisPort, host: '127.0.0.1' })
      const keys = Array.from({ length: LEASES }, (_, index) => `renewing:${index}`)
      await client.ping()
      const heapBefore = heap()
      const holder = await takeAll(client, keys, listens)
      const bytes = (heap() - heapBefore) / LEASES
      // The code is warm after some rounds, as in a process that holds leases for longer.
      await sleep(3 * RENEW_EVERY_MS)
      const durationMs = RENEW_EVERY_MS * (quick ? 3 : 10)
      const serverBefore = await redisProcessorMs(probe)
      const before = process.cpuUsage()
      await sleep(durationMs)
      const { user, system } = process.cpuUsage(before)
      const serverMs = (await redisProcessorMs(probe)) - serverBefore
      await holder.close()
      client.disconnect()
      probe.disconnect()
      return [(user + system) / 1000 / (durationMs / 100), serverMs / (durationMs / 100), bytes]
    },
  }
}

export const manyRenewed: readonly Candidate[] = [
  renewing('one script per 500 keys', takeBare, false),
  renewing('holdfast', takeHoldfast, false),
  renewing('redis-semaphore', takeRedisSemaphore, false),
]

export const manyRenewedWithListeners: readonly Candidate[] = [
  renewing('one script per 500 keys, and an AbortController each', takeBare, true),
  renewing('holdfast', takeHoldfast, true),
]

async function inBatches<T>(
  all: readonly T[],
  work: (batch: readonly T[]) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < all.length; start += BATCH) await work(all.slice(start, start + BATCH))
}

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}
