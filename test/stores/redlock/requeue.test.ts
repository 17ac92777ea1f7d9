import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import { RedlockServer } from '../../../src/stores/redlock/redlock-server.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { age } from './masters.ts'

test('a waiter that has just given way is not silent: an offer that lapses in front of it leaves it its place', async () => {
  const server = await startRedis()
  await age(server)
  const redlockServer = new RedlockServer(ioredisLink(new Redis(server.url, { lazyConnect: true })), {
    index: 0,
    prefix: 'holdfast:',
    maxTtlMs: 600_000,
    watch: { canSpare: () => true, onBack: () => {}, onIdentity: () => undefined, onRefusal: () => {} },
  })
  onTestFinished(async () => {
    await redlockServer.close()
    await server.close()
  })
  // The acceptance terms are a minute, except that of the dead waiter.
  const [mine, dead, behind] = [ticket(), ticket({ acceptMs: 3000 }), ticket()]
  fenceOf(await redlockServer.rooms.acquire(mine))
  expect(await redlockServer.rooms.acquire(dead)).toMatchObject({ tag: 'queued', ahead: 0 })
  // `mine` gives way, so the key is offered to the dead waiter.
  const [vote] = await redlockServer.scripts.votes(mine.key)
  expect(await redlockServer.scripts.requeue(mine, vote?.endsAt ?? '')).toBe(true)
  expect(await redlockServer.rooms.acquire(behind)).toMatchObject({ tag: 'queued', ahead: 1 })
  await pause(3010)
  // The offer has lapsed. `behind` asks before `mine`.
  const [answer] = await redlockServer.rooms.renew([behind])
  const [room] = (await redlockServer.rooms.inspect({ prefix: '', cursor: undefined, count: 1 })).rooms
  expect(room?.holders).toMatchObject([{ id: mine.id }])
  expect(answer).toMatchObject({ tag: 'queued' })
})
