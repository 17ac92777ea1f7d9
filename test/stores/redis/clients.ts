import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { createClient } from 'redis'
import { createClient as createClient4 } from 'redis4'
import { createClient as createClient6 } from 'redis6'
import type { IoredisClient, NodeRedisClient } from '../../../src/stores/redis/index.ts'

export type Client = IoredisClient | NodeRedisClient

/** The clients that a user may pass. None of them is connected, and none needs to be. */
export const clients: Readonly<Record<string, (url: string) => Client>> = {
  'ioredis 5': newClient,
  'ioredis 6': (url) => new Redis6(url, { lazyConnect: true }),
  'redis 4': (url) => createClient4({ url }),
  'redis 5': (url) => createClient({ url }),
  'redis 6': (url) => createClient6({ url }),
}

/** A client of any kind, for tests that do not depend on the kind. */
export function newClient(url: string): Client {
  return new Redis(url, { lazyConnect: true })
}
