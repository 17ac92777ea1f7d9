import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { readProjectFile } from '../../tidy/project.ts'
import { clients, newClient } from './clients.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

const [, rights = ''] =
  /^ACL SETUSER locks on >a-good-password (.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
const commands = Array.from(rights.matchAll(/\+(\w+)/g), ([, command]) => command ?? '')

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

/** The user of the documentation, and what is changed about it. */
async function user(...changes: string[]): Promise<string> {
  await server.command('ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', ...rights.split(' '), ...changes)
  await server.command('FLUSHALL')
  await server.command('SCRIPT', 'FLUSH')
  return `redis://locks:secret@127.0.0.1:${server.port}`
}

describe('a user that may do what the documentation lists', () => {
  test.each(Object.entries(clients))(
    'is enough for everything the store does through %s',
    async (_, newClient) => {
      const store = redisStore(newClient(await user()))
      await everything(store)
      await store.close()
      // What is tried without permission is logged, even if nobody would have noticed.
      expect(await server.command('ACL', 'LOG')).toEqual([])
    },
  )

  test.each(commands)('cannot do without %s', async (command) => {
    const store = redisStore(newClient(await user(`-${command}`)))
    await expect(everything(store)).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('docs/redis.md'),
    })
    await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })

  test.each(commands.filter((command) => !['eval', 'evalsha', 'scan', 'subscribe'].includes(command)))(
    'does not touch the room of somebody else without %s',
    async (command) => {
      const [full, store] = [
        redisStore(newClient(server.url)),
        redisStore(newClient(await user(`-${command}`))),
      ]
      const mine = ticket()
      await full.acquire(mine)
      const before = await server.command('GET', 'holdfast:{key}')
      const attempts = [store.acquire(ticket({ patienceMs: 0 })), store.release(releaseOf(ticket()))]
      for (const attempt of await Promise.allSettled(attempts)) expect(attempt.status).toBe('rejected')
      expect(await server.command('GET', 'holdfast:{key}')).toBe(before)
      for (const view of [full, store]) await view.close()
      await server.command('ACL', 'LOG', 'RESET')
    },
  )

  test.each(['resetkeys', 'resetchannels'])('cannot do with %s', async (change) => {
    const store = redisStore(newClient(await user(change)))
    await expect(everything(store)).rejects.toMatchObject({ code: 'store-refused' })
    await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })
})

/** Goes through every script, and every kind of room in it. */
async function everything(store: Store): Promise<void> {
  await store.listen?.(() => {})
  const [lone, holder, first, second] = [ticket({ key: 'lone' }), ticket(), ticket(), ticket()]
  fenceOf(await store.acquire(lone))
  fenceOf(await store.acquire(holder))
  for (const waiter of [first, second]) await store.acquire(waiter)
  expect(await store.renew([lone, holder, first])).toMatchObject([
    { tag: 'held' },
    { tag: 'held' },
    { tag: 'queued' },
  ])
  await store.release({ key: holder.key, id: holder.id, cancel: true })
  fenceOf(await store.acquire(first))
  await store.evict({ key: first.key, id: first.id, reason: 'test' })
  expect((await store.inspect({ prefix: '', cursor: undefined, count: 10 })).rooms).toHaveLength(2)
  for (const each of [lone, first, second]) await store.release(releaseOf(each))
}
