import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { freePort } from '../../servers/free-port.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { startMasters } from './masters.ts'

function storeOf(urls: readonly string[]): Store {
  return redlockStore(
    urls.map((url) => new Redis(url, { lazyConnect: true })),
    { maxTtl: '2s' },
  )
}

test.each([
  ['keeps nothing', false],
  ['keeps every write', true],
])(
  'a replica that %s and takes the place of its master does not vote for a second holder',
  async (_, appendOnly) => {
    await using masters = await startMasters(3, { appendOnly })
    const [first, second, third] = masters.servers as readonly [RedisServer, RedisServer, RedisServer]
    await using replica = await startRedis({ replicaOf: third, appendOnly })
    await replica.follows(third)
    await until('it has run for longer than `maxTtl`', async () => {
      return Number(/uptime_in_seconds:(\d+)/.exec(String(await replica.command('INFO', 'server')))?.[1]) > 3
    })
    // From now on it hears of no vote. It has the note of its master, which says that the memory is old.
    await replica.command('REPLICAOF', 'NO', 'ONE')
    const away = `redis://127.0.0.1:${await freePort()}`
    const [store, other] = [
      storeOf([first.url, away, third.url]),
      storeOf([first.url, second.url, replica.url]),
    ]
    const short = { ttlMs: 2000, acceptMs: 2000 }
    fenceOf(await store.acquire(ticket(short)))
    await third.kill()
    const thief = ticket({ ...short, patienceMs: 0 })
    const outcome = await Promise.resolve(other.acquire(thief)).catch((error: unknown) => error)
    expect(outcome).not.toMatchObject({ tag: 'held' })
    // A replica that is slow to answer has no vote either.
    if (outcome instanceof Error) expect(outcome.message).toContain('do not count yet')
    await Promise.all([store.close(), other.close()])
  },
)

test('a master with a replica that keeps every write has forgotten nothing after a restart', async () => {
  await using masters = await startMasters(3, { appendOnly: true })
  const [first, second, third] = masters.servers as readonly [RedisServer, RedisServer, RedisServer]
  await using replica = await startRedis({ replicaOf: third, appendOnly: true })
  await replica.follows(third)
  await second.kill()
  await third.kill()
  await third.restart()
  const store = storeOf([first.url, second.url, third.url])
  await until('the votes count', () =>
    Promise.resolve(store.acquire(ticket({ ttlMs: 2000, acceptMs: 2000 }))).then(fenceOf),
  )
  await store.close()
})
