import type { Store } from '../../contract/store.ts'
import { type RedisStoreOptions, redisStore } from './options.ts'
import { answering } from './server/answering.ts'
import { newClient } from './server/new-client.ts'
import { checkUrl } from './server/server-url.ts'

/**
 * A store on the server that a URL names, by whichever client package is installed: `ioredis`, or else `redis`. Asks the
 * server something before it resolves, so that a wrong password is known at once. `close()` ends all its connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when the server is not there, says nothing for 5 s, or refuses.
 */
export async function openRedis(url: string, options: RedisStoreOptions = {}): Promise<Store> {
  checkUrl(url)
  return answering(redisStore(await newClient(url), options))
}
