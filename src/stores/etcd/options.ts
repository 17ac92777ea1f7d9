import { createSecureContext } from 'node:tls'
import { checkOptions, expected, parseFlag } from '../../base/arguments.ts'
import { InvalidArgumentError } from '../../errors.ts'

/** How to reach the members of etcd, and where the store keeps its keys. */
export interface EtcdStoreOptions {
  /** The client URLs of the members: all `http://`, or all `https://`. Name all members: if one fails, the others are asked. */
  readonly endpoints: readonly string[]
  /** For an etcd with authentication. The user's role needs readwrite on all keys that begin with `prefix`. */
  readonly auth?: { readonly username: string; readonly password: string } | undefined
  /** For `https://` endpoints: certificates and names. Default: what Node.js trusts. */
  readonly tls?: EtcdTls | undefined
  /** What all keys begin with. Default: `holdfast/`. */
  readonly prefix?: string | undefined
  /**
   * Whether the store is only looked at. Then a role that may read the keys is enough, and calls that would change something are
   * refused. See docs/inspect.md. Default: false.
   */
  readonly readOnly?: boolean | undefined
}

/** PEM texts, or what `tls.connect` takes in their place. */
export interface EtcdTls {
  /** The authorities that may have signed the members' certificates. Default: those that Node.js knows. */
  readonly ca?: string | Buffer | undefined
  /** The certificate of this client, where etcd asks for one, … */
  readonly cert?: string | Buffer | undefined
  /** … and its key. */
  readonly key?: string | Buffer | undefined
  /** The name to look for in the members' certificates. Default: the host in `endpoints`. */
  readonly servername?: string | undefined
}

/** @throws {InvalidArgumentError} when an option is not what it should be. */
export function checkedOptions(options: EtcdStoreOptions): EtcdStoreOptions {
  checkOptions(options, ['endpoints', 'auth', 'tls', 'prefix', 'readOnly'])
  const { endpoints, auth, tls, prefix } = options
  parseFlag('readOnly', options.readOnly, false)
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
export function originOf(endpoint: unknown): string {
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
      `${expected}, got one with a user or a path, or without a host. User and password go into \`auth\`.`,
    )
  }
  return origin
}
