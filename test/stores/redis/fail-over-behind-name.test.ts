import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { newClient } from './clients.ts'

/** A name in front of the primary, as of a proxy or a service of Kubernetes: it decides where new connections go. */
async function startName(port: number) {
  const name = { target: port, port: 0 }
  const server = createServer((client) => {
    const there = connect(name.target, '127.0.0.1')
    client.pipe(there).pipe(client)
    client.on('error', () => there.destroy())
    there.on('error', () => client.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  name.port = (server.address() as { port: number }).port
  server.unref()
  onTestFinished(() => {
    server.close()
  })
  return name
}

test('a living waiter whose messages come by way of a replica (after a failover behind a name) gets its turn', async () => {
  const old = await startRedis()
  const next = await startRedis({ replicaOf: { port: old.port } })
  onTestFinished(async () => {
    await next.close()
    await old.close()
  })
  const proxy = await startName(old.port)
  const before = createLocks(redisStore(newClient(`redis://127.0.0.1:${proxy.port}`)), {
    ttl: '30s',
    wait: '60s',
  })
  // Warm: it has listened, and its subscription flows.
  const blocker = await before.acquire('warm')
  const warm = before.acquire('warm')
  await pause(300)
  await blocker.release()
  await (await warm).release()

  // Fail-over: the new primary, and the old one follows it. Its connections stay.
  await next.command('REPLICAOF', 'NO', 'ONE')
  await old.command('REPLICAOF', '127.0.0.1', next.port)
  await until('the old one follows', async () =>
    String(await old.command('INFO', 'replication')).includes('master_link_status:up'),
  )
  proxy.target = next.port

  const after = createLocks(redisStore(newClient(next.url)), { ttl: '30s', wait: '60s' })
  onTestFinished(async () => {
    await before.close()
    await after.close()
  })
  let over = false
  let held = await after.acquire('k')
  const startedAt = performance.now()
  const mine = before.acquire('k').then((lease) => {
    over = true
    return lease
  })
  await pause(1000)
  // Others come and go, always one behind.
  while (!over && performance.now() - startedAt < 20_000) {
    const following = after.acquire('k')
    await pause(20)
    await held.release()
    const winner = await Promise.race([following.then((lease) => ({ lease })), mine.then(() => undefined)])
    if (winner === undefined) {
      await (await mine).release()
      held = await following
      break
    }
    held = winner.lease
  }
  await held.release()
  // It is passed over until it asks, two seconds after it came at the latest, and not again.
  expect(over && performance.now() - startedAt).toBeLessThan(8_000)
})
