import { createClient } from 'redis'
import { lock } from 'simple-redis-mutex'
import type { Opener } from '../library.ts'

export const open: Opener['open'] = async ({ ports: [port], ttlMs }) => {
  const client = createClient({ url: `redis://127.0.0.1:${port}` })
  client.on('error', () => {})
  await client.connect()
  return {
    async acquire(key, waitMs) {
      try {
        const release = await lock(client, key, { timeout: ttlMs, failAfter: waitMs })
        return { lost: undefined, release: () => release() }
      } catch (error) {
        if (/could not be acquired/.test(String(error))) return null
        throw error
      }
    },
    async close() {
      client.destroy()
    },
  }
}
