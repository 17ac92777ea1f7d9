import { expect, test } from 'vitest'
import { createLocks, isHoldfastError } from '../../../../src/index.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { shortestMs } from '../../../base/measured.ts'
import { startCluster } from '../../../servers/redis-cluster.ts'
import { until } from '../../../servers/until.ts'
import { newClusterClient } from './clients.ts'

test('without most masters every call ends in its time and a holder is told; with them all goes on', async () => {
  await using cluster = await startCluster({ replicas: 0, args: ['--appendonly', 'yes'] })
  await using locks = createLocks(redisStore(newClusterClient(cluster)))
  const survivor = await cluster.masterOf('holdfast:{held}')
  const lease = await locks.acquire('held', { ttl: '8s' })
  const waiter = locks.acquire('held', { wait: Number.POSITIVE_INFINITY })
  const away = cluster.servers.filter((server) => server !== survivor)
  for (const server of away) await server.kill()
  await until('the survivor refuses to work alone', async () =>
    String(await survivor.command('CLUSTER', 'INFO')).includes('cluster_state:fail'),
  )
  for (const key of ['held', 'other', 'elsewhere', 'far away']) {
    const tookMs = await shortestMs(10_000, async () => {
      const startedAt = performance.now()
      const error = await locks.acquire(key, { wait: '2s' }).catch((reason: unknown) => reason)
      expect(isHoldfastError(error), `${key}: ${error}`).toBe(true)
      return performance.now() - startedAt
    })
    expect(tookMs).toBeLessThan(10_000)
  }
  await until('the holder is told', () => lease.state === 'lost')
  expect(lease.signal.aborted).toBe(true)
  for (const server of away) await server.restart()
  const next = await waiter
  expect(next.fence > lease.fence).toBe(true)
  await next.release()
  for (const key of ['other', 'elsewhere', 'far away']) {
    await until('the key is free', () => locks.withLock(key, { wait: '2s' }, () => true).catch(() => false))
  }
  for await (const { holders, queue } of locks.inspect()) expect([...holders, ...queue]).toEqual([])
})
