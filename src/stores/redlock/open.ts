import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { newClient } from '../redis/server/new-client.ts'
import { databaseOf, isDecodable } from '../redis/server/server-url.ts'
import { newRedlockStore, type RedlockStoreOptions } from './options.ts'

/**
 * A store on the servers that a URL names: `redlock:redis://a:6379,redis://b:6379,redis://c:6379`, by whichever client package
 * is installed: `ioredis`, or else `redis`. Asks them who they are before it resolves. One that cannot be reached does not
 * matter as long as a majority can; `close()` ends all connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when a majority is not there or refuses, when two of them are the same server, or one is a replica.
 */
export async function openRedlock(url: string, options: RedlockStoreOptions = {}): Promise<Store> {
  const clients = await Promise.all(parseUrls(url).map((one) => newClient(one)))
  return opened(newRedlockStore(clients, options), (store) => store.meet())
}

/** The URLs themselves are in no message: they may hold passwords. */
function parseUrls(url: unknown): readonly string[] {
  const expected = 'Expected `url` to be like redlock:redis://a:6379,redis://b:6379,redis://c:6379'
  const [, list] = typeof url === 'string' ? (/^redlock:(.*)$/is.exec(url) ?? []) : []
  if (list === undefined) throw new InvalidArgumentError(`${expected}, got something else.`)
  if (list.trim() === '') throw new InvalidArgumentError(`${expected}, got an empty list.`)
  return list.split(/,(?=\s*(?:rediss?:|$))/i).map((text, index) => {
    const one = text.trim()
    const parsed = URL.canParse(one) ? new URL(one) : undefined
    const isFine =
      (parsed?.protocol === 'redis:' || parsed?.protocol === 'rediss:') &&
      parsed.hostname !== '' &&
      databaseOf(parsed) !== undefined &&
      isDecodable(parsed.username + parsed.password)
    if (isFine) return one
    throw new InvalidArgumentError(
      `${expected}, got a part ${index + 1} that is not the URL of a Redis server, as in redis://user:password@host:6379/0.`,
    )
  })
}
