import { createSecureContext } from 'node:tls'
import { checkOptions, expected } from '../../base/arguments.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { EtcdStore } from './etcd-store.ts'
import { Cluster } from './grpc/cluster.ts'

export interface EtcdStoreOptions {
  /** The client URLs of the members, `http://` or all of them `https://`. Name all: the others are asked where one fails. */
  readonly endpoints: readonly string[]
  /** For an etcd with authentication. Its role needs readwrite on all keys that begin with `prefix`. */
  readonly auth?: { readonly username: string; readonly password: string }
  readonly tls?: EtcdTls
  /** What all keys begin with. Default: `holdfast/`. */
  readonly prefix?: string
}

/** PEM texts, or what `tls.connect` takes in their place. */
export interface EtcdTls {
  /** The authorities that may have signed the members' certificates. Default: those that Node.js knows. */
  readonly ca?: string | Buffer
  /** The certificate of this client, where etcd asks for one, … */
  readonly cert?: string | Buffer
  /** … and its key. */
  readonly key?: string | Buffer
  /** The name to look for in the members' certificates. Default: the host in `endpoints`. */
  readonly servername?: string
}

/**
 * A store on etcd 3.4 or newer: one lease for each process, one key for each ticket, and a hand-over without any request.
 * Waits and fences are etcd's own: what one member has answered, a quorum knows.
 *
 * Needs the package `@grpc/grpc-js` 1.13 or newer, which it loads with the first request; that is when it connects, too. It does
 * not keep the process alive. A process that dies, hangs or is cut off loses its tickets after their ttl and a fifth of it more,
 * in whole seconds, holders and waiters alike.
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
  const { endpoints, auth, tls = {}, prefix = 'holdfast/' } = checked(options)
  const cluster = new Cluster({ endpoints: endpoints.map(originOf), auth, tls, prefix })
  return new EtcdStore(cluster, prefix)
}

function checked(options: EtcdStoreOptions): EtcdStoreOptions {
  checkOptions(options, ['endpoints', 'auth', 'tls', 'prefix'])
  const { endpoints, auth, tls, prefix } = options
  if (!Array.isArray(endpoints) || endpoints.length === 0) {
    throw expected('endpoints', 'an array with at least one URL', endpoints)
  }
  for (const endpoint of endpoints) originOf(endpoint)
  if (new Set(endpoints.map((endpoint) => new URL(endpoint).protocol)).size > 1) {
    throw new InvalidArgumentError(
      'Expected all `endpoints` to begin with http: or all with https:, got both.',
    )
  }
  if (auth !== undefined && (typeof auth?.username !== 'string' || typeof auth.password !== 'string')) {
    throw new InvalidArgumentError('Expected `auth` to have a `username` and a `password`, got one without.')
  }
  if (prefix !== undefined && (typeof prefix !== 'string' || prefix === '' || prefix.includes('\0'))) {
    throw expected('prefix', 'a string with at least one character and without NUL', prefix)
  }
  if (tls !== undefined) checkTls(tls, endpoints)
  return options
}

function checkTls(tls: EtcdTls, endpoints: readonly string[]): void {
  checkOptions(tls, ['ca', 'cert', 'key', 'servername'])
  const { servername, ...certificates } = tls
  if (servername !== undefined && typeof servername !== 'string') {
    throw expected('servername', 'a string', servername)
  }
  const isUsed = Object.values(tls).some((value) => value !== undefined)
  if (isUsed && endpoints.some((endpoint) => new URL(endpoint).protocol !== 'https:')) {
    throw new InvalidArgumentError(
      'Expected all `endpoints` to begin with https: where there is `tls`, got http:, which has none.',
    )
  }
  try {
    createSecureContext(certificates)
  } catch (cause) {
    throw new InvalidArgumentError(
      'Expected `tls` to have certificates in PEM, and the key of `cert`, got what OpenSSL does not take.',
      { cause },
    )
  }
}

/** A password in a URL is in no message. */
function originOf(endpoint: unknown): string {
  const expected = 'Expected each of `endpoints` to be like http://host:2379 or https://host:2379'
  if (typeof endpoint !== 'string' || !URL.canParse(endpoint)) {
    throw new InvalidArgumentError(`${expected}, got something that is not a URL.`)
  }
  const { protocol, hostname, origin, username, pathname } = new URL(endpoint)
  if (protocol !== 'http:' && protocol !== 'https:') {
    throw new InvalidArgumentError(`${expected}, got one that begins with ${protocol}`)
  }
  if (hostname === '' || username !== '' || pathname !== '/') {
    throw new InvalidArgumentError(
      `${expected}, got one with more or less in it. User and password go into \`auth\`.`,
    )
  }
  return origin
}
