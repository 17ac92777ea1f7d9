import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { type IoredisClient, redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { fenceOf, ticket } from '../tickets.ts'

/** They suit an application, and would harm the connections of the store. */
interface Settings {
  readonly connectionName?: string
  readonly commandTimeout?: number
  readonly socketTimeout?: number
}

const ioredis: Readonly<Record<string, (port: number, settings: Settings) => IoredisClient>> = {
  'ioredis 5': (port, settings) => new Redis({ port, lazyConnect: true, ...settings }),
  'ioredis 6': (port, settings) => new Redis6({ port, lazyConnect: true, ...settings }),
}

describe.each(Object.entries(ioredis))('through %s', (_, newClient) => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())

  test('with a name, a connection that is closed at its first request is opened again', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const locks = createLocks(redisStore(newClient(proxy.port, { connectionName: 'shop' })))
    const lost = proxy.loseNextRequest()
    const lease = await locks.acquire('key', { wait: 20_000 })
    await lost
    await lease.release()
    await locks.close()
  })

  test('with a limit for each command, a connection that dies silently is replaced', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const locks = createLocks(redisStore(newClient(proxy.port, { commandTimeout: 300 })))
    await (await locks.acquire('warm')).release()
    proxy.strand()
    await (await locks.acquire('key', { wait: 20_000 })).release()
    await locks.close()
  })

  test('with a limit for silence, a late answer is an answer', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(proxy.port, { socketTimeout: 200 }))
    await store.acquire(ticket({ key: 'warm' }))
    proxy.delay({ replyMs: 800 })
    fenceOf(await store.acquire(ticket({ key: 'late' })))
    await store.close()
  })
})
