import { Redis } from 'ioredis'
import type { Adapter, Surroundings } from '../adapter.ts'

const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

/** The baseline for a free key: SET NX PX, and a compare-and-delete. It cannot wait. */
export async function openBareRedis({ redisPort }: Surroundings): Promise<Adapter> {
  const client = new Redis({ port: redisPort, host: '127.0.0.1' })
  client.defineCommand('compareAndDelete', { numberOfKeys: 1, lua: RELEASE })
  const { compareAndDelete } = client as unknown as {
    compareAndDelete(key: string, token: string): Promise<number>
  }
  let count = 0
  return {
    async acquire(key) {
      count += 1
      const token = `${process.pid}-${count}`
      const answer = await client.set(key, token, 'PX', 30_000, 'NX')
      if (answer !== 'OK') throw new Error(`${key} is not free`)
      return async () => {
        await compareAndDelete.call(client, key, token)
      }
    },
    attempt: (key) => client.set(key, 'other', 'PX', 30_000, 'NX'),
    async close() {
      client.disconnect()
    },
  }
}
