import { expect } from 'vitest'
import type { RoomView, Store } from '../../src/contract/store.ts'
import { createLocks, type Lease, type Locks, type LocksOptions } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { type RedisOptions, type RedisServer, startRedis } from '../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { type Client, clients } from '../stores/redis/clients.ts'

export type ClientKind = 'ioredis 5' | 'redis 5'

export const clientKinds: readonly ClientKind[] = ['ioredis 5', 'redis 5']

export interface SceneOptions extends RedisOptions {
  /**
   * Whether the test gives up requests whose fate is unknown. Then rooms may outlast it as tombstones, which expire.
   */
  readonly cancels?: boolean
}

/**
 * A real Redis server, a proxy in front of it, and the locks of a test. Whatever the body does, everything is closed at
 * the end. If the body succeeds, nothing may be left in the server.
 */
export function inScene(
  body: (scene: Scene) => Promise<void>,
  options: SceneOptions = {},
): () => Promise<void> {
  return async () => {
    await using server = await startRedis(options)
    await using proxy = await startProxy({ targetPort: server.port })
    const scene = new Scene(server, proxy)
    try {
      await body(scene)
      await scene.close()
      await expectNothingLeft(server, options)
    } finally {
      await scene.close()
    }
  }
}

export class Scene {
  readonly server: RedisServer
  readonly proxy: FaultProxy
  readonly #locks: Locks[] = []
  #observer: Store | undefined

  constructor(server: RedisServer, proxy: FaultProxy) {
    this.server = server
    this.proxy = proxy
  }

  /** Locks on a client of their own that reaches the server directly. */
  direct(options: LocksOptions & { readonly kind?: ClientKind } = {}): Locks {
    const { kind = 'ioredis 5', ...rest } = options
    return this.locksOn(newClient(kind, this.server.url), rest)
  }

  /** Locks on a client of their own that reaches the server only through the proxy. */
  proxied(options: LocksOptions & { readonly kind?: ClientKind } = {}): Locks {
    const { kind = 'ioredis 5', ...rest } = options
    return this.locksOn(newClient(kind, `redis://127.0.0.1:${this.proxy.port}`), rest)
  }

  locksOn(client: Client, options: LocksOptions = {}): Locks {
    const locks = createLocks(redisStore(client), options)
    this.#locks.push(locks)
    return locks
  }

  /** The server's record of a key, read directly; empty if no ticket holds or waits. */
  async room(key: string): Promise<Pick<RoomView, 'holders' | 'queue'>> {
    this.#observer ??= redisStore(newClient('ioredis 5', this.server.url))
    const page = await this.#observer.inspect({ prefix: key, cursor: undefined, count: 100 })
    return page.rooms.find((room) => room.key === key) ?? { holders: [], queue: [] }
  }

  /** Resolves when this many stores listen. A waiter that cannot hear yet would let the waiters behind it go first. */
  async untilListening(count: number): Promise<void> {
    await until(`${count} listen`, async () => {
      return ((await this.server.command('PUBSUB', 'CHANNELS')) as string[]).length === count
    })
  }

  async untilQueued(key: string, count: number): Promise<void> {
    await until(`${count} wait for ${key}`, async () => (await this.room(key)).queue.length === count)
  }

  /**
   * Loads every script into the server. Otherwise the first call of a script might take a second request, and a test
   * needs exactly one.
   */
  async teachScripts(): Promise<void> {
    const lease = await this.direct().acquire('taught')
    await lease.extend()
    await lease.release()
    await this.room('taught')
  }

  /** How many EVALSHA and EVAL requests clients have sent since the last `CONFIG RESETSTAT`. */
  async requests(): Promise<number> {
    const { evalsha = 0, eval: evaluated = 0 } = await this.server.commandStats()
    return evalsha + evaluated
  }

  async close(): Promise<void> {
    await Promise.all(this.#locks.splice(0).map((locks) => locks.close()))
    await this.#observer?.close()
    this.#observer = undefined
  }
}

function newClient(kind: ClientKind, url: string): Client {
  const client = clients[kind]?.(url)
  if (client === undefined) throw new Error(`Expected a client of the kind ${kind}`)
  return client
}

/** Fences need one key for ever. A tombstone needs its room for about a minute. */
async function expectNothingLeft(server: RedisServer, { cancels = false }: SceneOptions): Promise<void> {
  const keys = ((await server.command('KEYS', '*')) as string[]).filter((key) => key !== 'holdfast:fence')
  if (!cancels) return expect(keys).toEqual([])
  for (const key of keys) expect(await server.command('PTTL', key)).toBeGreaterThan(0)
  const store = redisStore(newClient('ioredis 5', server.url))
  expect((await store.inspect({ prefix: '', cursor: undefined, count: 100 })).rooms).toEqual([])
  await store.close()
}

/** When the lease's signal aborted, on this machine's wall clock. */
export function abortedAt(lease: Lease): Promise<number> {
  const { signal } = lease
  return new Promise((resolve) => {
    if (signal.aborted) resolve(Date.now())
    else signal.addEventListener('abort', () => resolve(Date.now()), { once: true })
  })
}

export function errorOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => {
      throw new Error(`Expected a rejection, got ${String(value)}`)
    },
    (error: unknown) => error,
  )
}
