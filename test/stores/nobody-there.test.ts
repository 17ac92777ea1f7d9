import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { shortestMs } from '../base/measured.ts'
import { errorOf } from '../engine/scene.ts'
import { startEtcd } from '../servers/etcd-server.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'

const servers = [
  ['redis', startRedis, ({ url }: { url: string }) => url],
  ['redlock', startRedis, ({ url }: { url: string }) => `redlock:${url}?maxTtl=2s`],
  ['postgres', startPostgres, ({ url }: { url: string }) => url],
  ['etcd', startEtcd, ({ url }: { url: string }) => url.replace('http:', 'etcd:')],
] as const

test.each(servers)('%s went away: whoever does not wait is told at once', async (_, start, urlOf) => {
  await using server = await start()
  await using locks = await connect(urlOf(server), { ttl: '1s' })
  await (await locks.acquire('k', { wait: '30s' })).release()
  await server.kill()
  for (const ask of [
    () => locks.tryAcquire('k'),
    () => locks.tryAcquireAll(['a', 'b']),
    () => locks.tryWithLock('k', () => {}),
    () => locks.tryWithLocks(['a', 'b'], () => {}),
  ]) {
    const tookMs = await shortestMs(4000, async () => {
      const from = performance.now()
      expect(await errorOf(ask())).toMatchObject({
        code: 'store-unavailable',
        message: expect.stringContaining('ECONNREFUSED'),
      })
      return performance.now() - from
    })
    expect(tookMs).toBeLessThan(4000)
  }
})

test.each(servers)('%s restarts: whoever set storeTimeout gets an answer', async (_, start, urlOf) => {
  await using server = await start()
  await using locks = await connect(urlOf(server), { ttl: '1s' })
  await (await locks.acquire('k', { wait: '30s' })).release()
  await server.kill()
  const asked = locks.tryAcquire('other', { storeTimeout: '60s' })
  await server.restart()
  const lease = await asked
  expect(lease?.fence).toBeGreaterThan(0n)
  await lease?.release()
})
