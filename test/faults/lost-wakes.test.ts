import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { IoredisClient, IoredisConnection } from '../../src/stores/redis/index.ts'
import type { RedisServer } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { inScene } from './scene.ts'

/** A client whose messages come through the proxy, where they get lost. Its commands take the direct way. */
function clientWithMessagesThrough(
  messagesUrl: string,
  commandsUrl: string,
): IoredisClient & { call: unknown } {
  return {
    status: 'wait',
    options: {},
    call: () => undefined,
    duplicate(override): IoredisConnection {
      // Neither connection is made before it is used, and each is used for one purpose only.
      const commands = new Redis(commandsUrl, { ...override })
      const messages = new Redis(messagesUrl, { ...override })
      return {
        status: 'wait',
        call: (command, args) => commands.call(command, args),
        subscribe: (channel) => messages.subscribe(channel),
        on(event, listener) {
          commands.on(event, listener)
          return messages.on(event, listener)
        },
        disconnect() {
          commands.disconnect()
          messages.disconnect()
        },
      }
    },
  }
}

test(
  'when every published message is lost, all waiters are served all the same, in order, only later',
  inScene(async (scene) => {
    const { server, proxy } = scene
    const holder = await scene.direct().acquire('k')
    const served: number[] = []
    const waiters: Promise<void>[] = []
    for (const number of [0, 1, 2, 3, 4]) {
      // Each waiter has a store of its own, because a store that hands over to its own waiter needs no message.
      const client = clientWithMessagesThrough(`redis://127.0.0.1:${proxy.port}`, server.url)
      const locks = scene.locksOn(client, { ttl: 6000 })
      waiters.push(
        locks.withLock('k', () => {
          served.push(number)
        }),
      )
      await scene.untilQueued('k', number + 1)
    }
    await untilWakesFlow(server, 5)
    proxy.dropReplies()
    await holder.release()
    await Promise.all(waiters)
    expect(served).toEqual([0, 1, 2, 3, 4])
    // The messages were lost indeed, so each hand-over had to wait until a waiter asked by itself.
    expect(proxy.swallowed).toBeGreaterThanOrEqual(5)
  }),
)

test(
  'when the connection for messages comes back, the store asks for everything that was missed meanwhile',
  inScene(
    async (scene) => {
      const { server, proxy } = scene
      const client = clientWithMessagesThrough(`redis://127.0.0.1:${proxy.port}`, server.url)
      // The lease is renewed only after twenty seconds, so nothing else tells its holder sooner.
      const lease = await scene.locksOn(client).acquire('k', { ttl: 60_000 })
      const { signal } = lease
      await untilWakesFlow(server, 1)
      proxy.refuse()
      await untilWakesFlow(server, 0)
      await scene.direct().evict('k', lease.id, { reason: 'to see whether it hears of it' })
      proxy.normal()
      await until('its holder is told', () => signal.aborted)
      expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
    },
    { cancels: true },
  ),
)

/** Resolves once wakes flow to this many stores. */
async function untilWakesFlow(server: RedisServer, stores: number): Promise<void> {
  await until(`wakes flow to ${stores} stores`, async () => {
    return ((await server.command('PUBSUB', 'CHANNELS')) as string[]).length === stores
  })
}
