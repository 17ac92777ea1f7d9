import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { newClient } from './clients.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

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

/** The store of a process whose connections can be cut, with one waiter that asked while its messages flowed. */
async function farStore() {
  const proxy = await startProxy({ targetPort: server.port })
  const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
  onTestFinished(async () => {
    await store.close()
    await proxy.close()
  })
  await store.listen?.(() => {})
  return { store, proxy }
}

/** Until the server counts only this process' own subscription. */
function untilDeaf() {
  return until('the server has noticed', async () => {
    const channels = await server.command('PUBSUB', 'CHANNELS')
    return (channels as readonly string[]).length === 1
  })
}

test('an offer passes a waiter whose messages nobody gets, and it keeps its place', async () => {
  const { store: far, proxy } = await farStore()
  const [holder, deaf, next, last] = [ticket(), ticket(), ticket(), ticket()]
  const fence = fenceOf(await near.acquire(holder))
  expect(await far.acquire(deaf)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 1 })
  expect(await near.acquire(last)).toMatchObject({ tag: 'queued', ahead: 2 })
  proxy.refuse()
  await untilDeaf()
  await near.release(releaseOf(holder))
  expect(fenceOf(await near.acquire(next)) > fence).toBe(true)
  expect((await near.inspect({ prefix: '', cursor: undefined, count: 1 })).rooms[0]?.queue).toMatchObject([
    { id: deaf.id },
    { id: last.id },
  ])
  // Its process lives, and comes back before the next turn.
  proxy.normal()
  await until('it can ask', async () => (await far.acquire(deaf)).tag === 'queued')
  await near.release(releaseOf(next))
  expect(await near.acquire(last)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(fenceOf(await far.acquire(deaf)) > fence).toBe(true)
})

test('a waiter that has asked without its messages is offered the key in its turn, although nobody gets its message', async () => {
  const silent = redisStore(newClient(server.url))
  onTestFinished(() => silent.close())
  const [holder, early, next] = [ticket(), ticket(), ticket()]
  const fence = fenceOf(await near.acquire(holder))
  // As by a process that does not listen yet.
  expect(await silent.acquire(early)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 1 })
  await near.release(releaseOf(holder))
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(fenceOf(await silent.acquire(early)) > fence).toBe(true)
})

test('if nobody in the queue gets messages any more, the head is offered the key', async () => {
  const { store: far, proxy } = await farStore()
  const [holder, ...waiters] = [ticket(), ticket(), ticket(), ticket()] as const
  fenceOf(await near.acquire(holder))
  for (const waiter of waiters) await far.acquire(waiter)
  proxy.refuse()
  await untilDeaf()
  await near.release(releaseOf(holder))
  const [room] = (await near.inspect({ prefix: '', cursor: undefined, count: 1 })).rooms
  expect(room?.holders).toMatchObject([{ id: waiters[0].id, state: 'offered' }])
  expect(room?.queue).toHaveLength(2)
})
