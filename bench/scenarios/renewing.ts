import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { createLocks } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import type { Candidate } from '../scenario.ts'

const LEASES = 10_000
const TTL_MS = 6000
const BATCH = 500

const RENEW = `
local held = 0
for index = 1, #KEYS do
  if redis.call('GET', KEYS[index]) == ARGV[index + 1] then held = held + redis.call('PEXPIRE', KEYS[index], ARGV[1]) end
end
return held`

/** The limit: one script per 500 keys, every third of the ttl, from an array of keys and tokens. */
export const bareRenewing: Candidate = {
  name: 'one script per 500 keys',
  async measure({ redisPort }, { quick }) {
    const client = new Redis({ port: redisPort, host: '127.0.0.1' })
    client.defineCommand('renewAll', { lua: RENEW })
    const { renewAll } = client as unknown as { renewAll(...args: (string | number)[]): Promise<number> }
    const heapBefore = heap()
    const held: { readonly key: string; readonly token: string }[] = []
    for (let index = 0; index < LEASES; index += 1)
      held.push({ key: `renewing:${index}`, token: `${process.pid}-${index}` })
    await inBatches(held, (batch) =>
      Promise.all(batch.map(({ key, token }) => client.set(key, token, 'PX', TTL_MS))),
    )
    const bytes = (heap() - heapBefore) / LEASES
    const cpu = await cpuWhile(async () => {
      for (let round = 0; round < (quick ? 1 : 4); round += 1) {
        await inBatches(held, (batch) =>
          renewAll.call(
            client,
            batch.length,
            ...batch.map(({ key }) => key),
            TTL_MS,
            ...batch.map(({ token }) => token),
          ),
        )
        await sleep(TTL_MS / 3)
      }
    })
    client.disconnect()
    return [cpu, bytes]
  },
}

export const holdfastRenewing: Candidate = {
  name: 'holdfast',
  async measure({ redisPort }, { quick }) {
    const client = new Redis({ port: redisPort, host: '127.0.0.1' })
    const locks = createLocks(redisStore(client), { ttl: TTL_MS })
    await (await locks.acquire('warm')).release()
    const heapBefore = heap()
    const keys = Array.from({ length: LEASES }, (_, index) => `renewing:${index}`)
    const leases = []
    for (let start = 0; start < LEASES; start += BATCH) {
      leases.push(...(await Promise.all(keys.slice(start, start + BATCH).map((key) => locks.acquire(key)))))
    }
    const bytes = (heap() - heapBefore) / LEASES
    const cpu = await cpuWhile(() => sleep((TTL_MS / 3) * (quick ? 1 : 4)))
    const lost = leases.filter((lease) => lease.state === 'lost').length
    if (lost > 0) throw new Error(`${lost} of ${LEASES} leases were lost while they were renewed.`)
    await locks.close()
    client.disconnect()
    return [cpu, bytes]
  },
}

async function inBatches<T>(
  all: readonly T[],
  work: (batch: readonly T[]) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < all.length; start += BATCH) await work(all.slice(start, start + BATCH))
}

/** CPU of this process in ms per second. */
async function cpuWhile(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / (performance.now() - startedAt)
}

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}
