import { absent, notInstalled, tooOld } from '../../../base/packages.ts'
import type { IoredisClient } from './ioredis.ts'
import type { NodeRedisClient } from './node-redis.ts'
import { databaseOf, URL_OPTIONS } from './server-url.ts'

/** A client for the server of a URL. It never connects itself: the store only duplicates it. */
export async function newClient(url: string): Promise<IoredisClient | NodeRedisClient> {
  // The two packages do not take the database from the same parts of a URL.
  const bare = new URL(url)
  const database = databaseOf(bare) ?? 0
  bare.pathname = ''
  for (const name of ['db', ...URL_OPTIONS]) bare.searchParams.delete(name)
  const ioredis = await packageIoredis()
  if (ioredis !== undefined) {
    if (!('Redis' in ioredis)) throw tooOld('ioredis 5 or newer', 'ioredis')
    return new ioredis.Redis(bare.href, { lazyConnect: true, db: database })
  }
  const redis = await packageRedis()
  if (redis !== undefined) {
    if (!('createCluster' in redis)) throw tooOld('redis 4 or newer', 'redis')
    return redis.createClient({ url: bare.href, database })
  }
  throw notInstalled('ioredis', 'redis')
}

async function packageIoredis(): Promise<Pick<typeof import('ioredis'), 'Redis'> | undefined> {
  try {
    return await import('ioredis')
  } catch (error) {
    return absent(error)
  }
}

async function packageRedis(): Promise<typeof import('redis') | undefined> {
  try {
    return await import('redis')
  } catch (error) {
    return absent(error)
  }
}
