// Takes a lock in a cluster, waits for another one, and closes nothing: the process has to end by itself.
import { createLocks } from '../../../../../src/index.ts'
import { redisStore } from '../../../../../src/stores/redis/index.ts'

const [, , kind, port] = process.argv
const socket = { host: '127.0.0.1', port: Number(port) }
const client =
  kind === 'ioredis'
    ? new (await import('ioredis')).Cluster([socket], {
        redisOptions: { password: 'sesame' },
        lazyConnect: true,
      })
    : (await import('redis')).createCluster({ rootNodes: [{ socket }], defaults: { password: 'sesame' } })
const locks = createLocks(redisStore(client))
const lease = await locks.acquire(`forgotten by ${kind}`)
lease.signal.addEventListener('abort', () => {})
const waiting = locks.acquire(`forgotten by ${kind}`, { wait: '300ms' })
await waiting.catch(() => {})
await lease.release()
