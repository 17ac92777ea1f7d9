import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { bulk, type FakeRedis, list, startFakeRedis } from '../../../servers/fake-redis.ts'
import { PATIENT_MASTERS, startCluster } from '../../../servers/redis-cluster.ts'
import { startProxy } from '../../../servers/tcp-proxy.ts'
import { until } from '../../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'

test('a master that is cut off from its cluster is left for its successor, though it answers first', async () => {
  await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  await using former = await startCutOffMaster()
  const [first] = cluster.servers
  const farPort = first?.port as number
  await using far = await startProxy({ targetPort: farPort })
  far.delay({ replyMs: 60 })
  const createNode = ({ host, port }: { readonly host: string; readonly port: number }): Redis =>
    new Redis({ host, port: port === farPort ? far.port : port, lazyConnect: true })
  const nodes = [former.port, farPort].map((port) => ({ host: '127.0.0.1', port }))
  const store = redisStore(createNode({ host: '127.0.0.1', port: farPort }), {
    cluster: { nodes, createNode },
  })
  const mine = ticket()
  // The former master answers first, and still takes itself for the master of all slots.
  await expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable' })
  former.notice()
  await until('another server has granted', async () => {
    try {
      return fenceOf(await store.acquire(mine))
    } catch {
      return undefined
    }
  })
  // It is still asked for the map of the cluster now and then, and for nothing else.
  const requests = former.requests()
  await store.release(releaseOf(mine))
  expect(former.requests()).toBe(requests)
  await store.close()
})

/**
 * A server that answers as Redis does when its cluster bus is cut: its map stays as it was, and after the node timeout it
 * refuses every request for a key.
 */
async function startCutOffMaster(): Promise<FakeRedis & { notice(): void; requests(): number }> {
  let state = 'ok'
  let requests = 0
  const server: FakeRedis = await startFakeRedis(([command = '', subcommand]) => {
    if (/^cluster$/i.test(command)) {
      if (/^info$/i.test(subcommand ?? '')) return bulk(`cluster_enabled:1\r\ncluster_state:${state}\r\n`)
      return list(list(':0\r\n', ':16383\r\n', list(bulk('127.0.0.1'), `:${server.port}\r\n`, bulk('id'))))
    }
    if (/^(eval|evalsha|fcall)$/i.test(command)) requests += 1
    return '-CLUSTERDOWN The cluster is down\r\n'
  })
  return Object.assign(server, {
    notice() {
      state = 'fail'
    },
    requests: () => requests,
  })
}
