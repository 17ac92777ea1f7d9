import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { createLocks, type Lease } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { shortestMs } from '../../base/measured.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { newClient } from './clients.ts'

/**
 * A name in front of the primary, as a proxy or a service of Kubernetes has it. The name decides where new connections
 * go.
 */
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

/**
 * `before` was connected before the fail-over. Its requests go to the new primary. Its messages come from the old
 * primary, which follows the new one.
 */
async function failedOver() {
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
  // A first hand-over, so that `before` has listened and its subscription flows.
  const blocker = await before.acquire('warm')
  const warm = before.acquire('warm')
  await pause(300)
  await blocker.release()
  await (await warm).release()

  // The fail-over: `next` becomes the primary, and the old primary follows it. The old primary's connections stay.
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
  return { before, after }
}

test('a living waiter whose messages come by way of a replica (after a failover behind a name) gets its turn', async () => {
  const { before, after } = await failedOver()
  const turnAfterMs = async (): Promise<number> => {
    let turnAt = Number.POSITIVE_INFINITY
    let held = await after.acquire('k')
    const startedAt = performance.now()
    const mine = before.acquire('k').then((lease) => {
      turnAt = performance.now()
      return lease
    })
    await pause(1000)
    // Other waiters come and go; always one of them is queued behind.
    while (performance.now() - startedAt < 20_000) {
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
    await (await mine).release()
    return turnAt - startedAt
  }
  // Other waiters pass the waiter until it asks, which is two seconds after it came at the latest. After that none
  // passes it.
  expect(await shortestMs(8_000, turnAfterMs)).toBeLessThan(8_000)
})

test('a message that comes by way of a replica, and that the primary did not count, is no lease', async () => {
  const { before, after } = await failedOver()
  const held = await after.acquire('k')
  const holders: string[] = []
  const use = (name: string) => async (lease: Lease) => {
    holders.push(name)
    return lease
  }
  const first = before.acquire('k').then(use('first'))
  await pause(1000)
  const second = after.acquire('k').then(use('second'))
  await pause(100)
  await held.release()
  await until('somebody has it', () => holders.length > 0)
  await pause(500)
  expect(holders).toHaveLength(1)
  const [early, late] = holders[0] === 'first' ? [first, second] : [second, first]
  await (await early).release()
  await (await late).release()
})
