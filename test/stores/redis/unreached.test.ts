import { afterAll, beforeAll, beforeEach, onTestFinished, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import {
  headOfUnreachedQueueIsOffered,
  offerPassesUnreachedWaiter,
  type TwoProcesses,
  waiterWithoutMessagesKeepsItsTurn,
} from '../unreached-waiters.ts'
import { newClient } from './clients.ts'

let server: RedisServer
let near: Store
beforeAll(async () => {
  server = await startRedis()
  near = redisStore(newClient(server.url))
  await near.listen?.(() => {})
})
beforeEach(() => server.command('FLUSHALL'))
afterAll(async () => {
  await near.close()
  await server.close()
})

async function twoProcesses(): Promise<TwoProcesses> {
  const proxy = await startProxy({ targetPort: server.port })
  const far = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
  onTestFinished(async () => {
    await far.close()
    await proxy.close()
  })
  await far.listen?.(() => {})
  return { near, far, proxy, untilUnreached }
}

/** Waits until the server counts only this process's own subscription. */
function untilUnreached() {
  return until('the server has noticed', async () => {
    const channels = await server.command('PUBSUB', 'CHANNELS')
    return (channels as readonly string[]).length === 1
  })
}

test('an offer passes a waiter whose messages reach nobody, and the waiter keeps its place', async () => {
  await offerPassesUnreachedWaiter(await twoProcesses())
})

test('a waiter that asked when it did not listen is offered the key in its turn, although its message reaches nobody', async () => {
  const silent = redisStore(newClient(server.url))
  onTestFinished(() => silent.close())
  await waiterWithoutMessagesKeepsItsTurn(near, silent)
})

test('if the messages of all waiters reach nobody, the head is offered the key', async () => {
  await headOfUnreachedQueueIsOffered(await twoProcesses())
})
