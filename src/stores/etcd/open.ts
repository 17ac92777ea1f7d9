import { checkOptions, given } from '../../base/arguments.ts'
import { opened } from '../../base/opened.ts'
import { look, readOnlyStore } from '../../base/read-only.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { EtcdStore } from './etcd-store.ts'
import { Cluster } from './grpc/cluster.ts'
import { loadDial } from './grpc/connection.ts'
import { checkedOptions, type EtcdStoreOptions, originOf } from './options.ts'

/**
 * A store on etcd 3.4 or newer. A quorum of etcd's members knows each grant before it is answered, and fences are etcd's own
 * revisions.
 *
 * Needs the package `@grpc/grpc-js` 1.13 or newer. It loads the package and connects with the first request. It does not keep the
 * process alive. If a process dies, hangs or is cut off, what it holds is free after the ttl, a third of it and three seconds
 * at most. Its waiters are gone after about two seconds.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { etcdStore } from 'holdfast/etcd'
 *
 * const locks = createLocks(etcdStore({ endpoints: ['http://localhost:2379'] }))
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when an option is not what it should be.
 */
export function etcdStore(options: EtcdStoreOptions): Store {
  const { endpoints, auth, tls = {}, prefix = 'holdfast/', readOnly } = checkedOptions(options)
  const cluster = new Cluster({ endpoints: endpoints.map(originOf), auth, tls, prefix })
  const store = new EtcdStore(cluster, prefix)
  return readOnly === true ? readOnlyStore(store) : store
}

/**
 * A store on the etcd that a URL names: `etcd://user:password@host1:2379,host2:2379,host3:2379`, or `etcds://…` for TLS
 * with the authorities that Node.js knows (`NODE_EXTRA_CA_CERTS` adds to them). For other certificates use
 * {@link etcdStore}. `?prefix=app/` is the option of that name. Asks etcd something before it resolves, so that a wrong password is known at once.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or `@grpc/grpc-js` is not installed.
 * @throws {StoreError} when no member answers, or etcd refuses.
 */
export async function openEtcd(
  url: string,
  options: Omit<EtcdStoreOptions, 'endpoints' | 'auth'> = {},
): Promise<Store> {
  checkOptions(options, ['tls', 'prefix', 'readOnly'])
  const store = etcdStore({ ...parseUrl(url), ...given(options) })
  await loadDial()
  // Needs the rights that every request needs, finds no ticket, and changes nothing.
  return opened(store, () =>
    options.readOnly === true
      ? look(store)
      : store.release({ key: 'is anybody there', id: '?', cancel: false }),
  )
}

/** The URL itself is in no message: it may hold a password. */
export function parseUrl(url: string): Pick<EtcdStoreOptions, 'endpoints' | 'auth' | 'prefix'> {
  const expected =
    'Expected `url` to be like etcd://user:password@host1:2379,host2:2379 (or etcds:// for TLS)'
  const match =
    typeof url === 'string'
      ? /^(etcds?):\/\/(?:([^@/]*)@)?([^@/?#]+)\/?(?:\?prefix=([^&#]+))?$/i.exec(url)
      : null
  if (match === null) throw new InvalidArgumentError(`${expected}, got something else.`)
  const [, scheme = '', credentials, hosts = '', prefixText] = match
  const protocol = scheme.toLowerCase() === 'etcds' ? 'https' : 'http'
  const endpoints = hosts
    .split(',')
    .map((host) => `${protocol}://${/:\d+$/.test(host) ? host : `${host}:2379`}`)
  if (!endpoints.every((endpoint) => URL.canParse(endpoint))) {
    throw new InvalidArgumentError(`${expected}, got one with a host or port that is not valid.`)
  }
  const ofUrl = { endpoints, ...(prefixText !== undefined && { prefix: decoded(prefixText, expected) }) }
  if (credentials === undefined) return ofUrl
  const [, username = '', password] = /^([^:]*):(.*)$/.exec(credentials) ?? []
  if (password === undefined || username === '') {
    throw new InvalidArgumentError(`${expected}, got one with a user or a password, and not both.`)
  }
  return { ...ofUrl, auth: { username: decoded(username, expected), password: decoded(password, expected) } }
}

function decoded(text: string, expected: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new InvalidArgumentError(`${expected}, got one that has a % that is not written as %25.`)
  }
}
