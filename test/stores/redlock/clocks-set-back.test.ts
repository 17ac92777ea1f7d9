import { afterAll, beforeAll, expect, test } from 'vitest'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { newClient } from '../redis/clients.ts'
import { clockClient } from '../redis/clock-client.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'

let servers: readonly RedisServer[]
beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()))
})
afterAll(() => Promise.all(servers.map((server) => server.close())))

/** Makes the server believe that it has been in use since then, by its own clock. */
async function rememberSince(server: RedisServer, ms: number): Promise<void> {
  const run = /run_id:(\w+)/.exec(String(await server.command('INFO', 'server')))?.[1] ?? '-'
  const since = String(Math.floor(ms)).padStart(13, '0')
  await server.command('SET', 'holdfast:since', `${run.slice(0, 12)} ${run} ${since}`)
}

const short = { ttlMs: 10_000, acceptMs: 10_000 }

test('a process that has known the servers for long enough gets a free key when all their clocks are set back', async () => {
  const startMs = Date.now()
  const clients = servers.map(({ url }) => clockClient(url))
  for (const [index, client] of clients.entries()) {
    await client.setTime(startMs)
    await rememberSince(servers[index] as RedisServer, startMs - 301_000)
  }
  const store = redlockStore(clients, { maxTtl: '5m' })
  const before = ticket({ key: 'before', ...short })
  let last = fenceOf(await store.acquire(before))
  await store.release(releaseOf(before))
  for (const client of clients) await client.setTime(startMs - 20_000)
  for (let round = 0; round < 5; round += 1) {
    const mine = ticket({ key: `after:${round % 2}`, ...short })
    const fence = fenceOf(await store.acquire(mine))
    expect(fence).toBeGreaterThan(last)
    last = fence
    await store.release(releaseOf(mine))
  }
  // The servers have forgotten all holders. The process knows no more of those than a process that meets the servers
  // for the first time.
  for (const server of servers) await server.command('FLUSHALL')
  for (const client of clients) await client.setTime(startMs - 20_000)
  await expect(store.acquire(ticket({ key: 'flushed', ...short }))).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringMatching(
      /lost their data, had their clocks set back, or were promoted from replicas/,
    ),
  })
  await store.close()
})

test('a process that meets the servers afterwards waits for no longer than `maxTtl`', async () => {
  // The servers wrote their start down before the clock went back by an hour.
  for (const server of servers) await rememberSince(server, Date.now() + 3_600_000)
  const store = redlockStore(
    servers.map(({ url }) => newClient(url)),
    { maxTtl: '2s' },
  )
  const mine = ticket({ ttlMs: 1000, acceptMs: 1000 })
  await expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable' })
  await until(
    'it is granted',
    () => Promise.resolve(store.acquire(mine)).then(fenceOf, () => false as const),
    {
      everyMs: 50,
    },
  )
  await store.close()
})
