import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import { clientOfUrl } from '../../postgres/client-of-url.ts'
import { type PostgresStoreOptions, postgresStore } from './client.ts'

/**
 * A store in the database that a URL names, by whichever client package is installed: `pg`, or else `postgres`. Asks the
 * server something before it resolves (and makes the schema where it is not there), so that a wrong password is known at
 * once. `close()` ends all its connections.
 *
 * @throws {InvalidArgumentError} when the URL, a certificate that it names, or an option is not what it should be, or neither
 * package is installed.
 * @throws {StoreError} when the server is not there, says nothing, or refuses.
 */
export async function openPostgres(url: string, options: PostgresStoreOptions = {}): Promise<Store> {
  const store = postgresStore(await clientOfUrl(url), options)
  // Needs what every request needs, finds nobody, and changes nothing.
  return opened(store, () => store.release({ key: 'is anybody there', id: '?', cancel: false }))
}
