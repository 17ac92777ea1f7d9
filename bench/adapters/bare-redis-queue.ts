import { Redis } from 'ioredis'
import type { Adapter, Release, Surroundings } from '../adapter.ts'

const ACQUIRE = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
return 0`

const RELEASE = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local head = redis.call('LPOP', KEYS[2])
if not head then return redis.call('DEL', KEYS[1]) end
local space = string.find(head, ' ', 1, true)
local id = string.sub(head, 1, space - 1)
redis.call('SET', KEYS[1], id, 'PX', 30000)
return redis.call('PUBLISH', string.sub(head, space + 1), id)`

interface Scripts {
  queueAcquire(lock: string, queue: string, id: string, inbox: string): Promise<number>
  queueRelease(lock: string, queue: string, id: string): Promise<number>
}

/**
 * The baseline for waiters: a list in Lua, and a message to who is next. One script to come, one to go. It never notices that
 * somebody died, and a lost message hangs its queue.
 */
export async function openBareRedisQueue({ redisPort }: Surroundings): Promise<Adapter> {
  const client = new Redis({ port: redisPort, host: '127.0.0.1' })
  const subscriber = new Redis({ port: redisPort, host: '127.0.0.1' })
  client.defineCommand('queueAcquire', { numberOfKeys: 2, lua: ACQUIRE })
  client.defineCommand('queueRelease', { numberOfKeys: 2, lua: RELEASE })
  const scripts = client as unknown as Scripts
  const waiting = new Map<string, () => void>()
  const inbox = `inbox:${process.pid}`
  subscriber.on('message', (_channel, id) => {
    waiting.get(id)?.()
    waiting.delete(id)
  })
  await subscriber.subscribe(inbox)
  let count = 0
  return {
    async acquire(key) {
      count += 1
      const id = `${process.pid}-${count}`
      const woken = new Promise<void>((resolve) => waiting.set(id, resolve))
      const release: Release = async () => {
        await scripts.queueRelease(key, `${key}:queue`, id)
      }
      if ((await scripts.queueAcquire(key, `${key}:queue`, id, inbox)) === 1) waiting.delete(id)
      else await woken
      return release
    },
    async close() {
      client.disconnect()
      subscriber.disconnect()
    },
  }
}
