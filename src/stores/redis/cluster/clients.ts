import { tooOld } from '../../../base/packages.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import type { ClusterLink, ServerAddress } from '../server/client-link.ts'
import { databaseOf, type IoredisClient, ioredisLink } from '../server/ioredis.ts'
import { type NodeRedisClient, nodeRedisLink } from '../server/node-redis.ts'

/** The part of a `Cluster` object of the package `ioredis`, version 5 or 6, that the store uses. */
export interface IoredisCluster {
  readonly status: string
  readonly options: object
  nodes(): unknown
  duplicate(startupNodes?: never[], options?: object): object
}

/**
 * The part of a client that the store uses. The package `redis`, version 5 or 6, makes such a client by
 * `createCluster()`.
 */
export interface NodeRedisCluster {
  readonly isOpen: boolean
  readonly masters: readonly unknown[]
  duplicate(overrides?: object): object
}

/**
 * The settings of a cluster's client that the store needs: the first addresses, user, password and TLS, and how the
 * client translates addresses. Neither package has a public way to them, so this file reads undocumented parts. The
 * option `cluster` of `redisStore` makes that unnecessary. See also server/undocumented.ts.
 */
export function ioredisClusterLink(cluster: IoredisCluster): ClusterLink {
  const { startupNodes, connectionPool } = cluster.duplicate([], { lazyConnect: true }) as {
    readonly startupNodes: readonly unknown[]
    readonly connectionPool: { findOrCreate(node: object): IoredisClient }
  }
  const { keyPrefix, natMap } = cluster.options as {
    readonly keyPrefix?: string
    readonly natMap?: AddressMap
  }
  const nodes = startupNodes.map(parseStartupNode)
  // A client of one server with the settings of the cluster. It never connects itself.
  const client = connectionPool.findOrCreate({ ...nodes[0] })
  checkDatabase(databaseOf(client))
  return {
    keyPrefix: keyPrefix ?? '',
    seeds: nodes.map(({ host, port }) => ({ host, port })),
    linkTo: (announced) => ioredisLink(client, mapped(natMap, announced)),
  }
}

export function nodeRedisClusterLink(cluster: NodeRedisCluster): ClusterLink {
  const { _options: options } = cluster as unknown as { readonly _options?: NodeRedisClusterOptions }
  if (options === undefined) throw tooOld('a cluster by redis 5 or newer', 'redis')
  checkDatabase(options.defaults?.database)
  const seeds = options.rootNodes.map(addressOfRoot)
  const client = plainClientOf(cluster, options)
  return {
    keyPrefix: options.keyPrefix ?? options.defaults?.keyPrefix ?? '',
    seeds,
    linkTo: (announced) => nodeRedisLink(client, mapped(options.nodeAddressMap, announced)),
  }
}

function checkDatabase(database = 0): void {
  if (database === 0) return
  throw new InvalidArgumentError(
    `Expected a client of a Redis Cluster to use database 0, as there is no other one, got ${database}.`,
  )
}

interface NodeRedisClusterOptions {
  readonly rootNodes: readonly RootNode[]
  readonly defaults?: {
    readonly keyPrefix?: string
    readonly socket?: object
    readonly username?: string
    readonly password?: string
    readonly database?: number
  }
  readonly nodeAddressMap?: AddressMap
  readonly keyPrefix?: string
}

interface RootNode {
  readonly url?: string
  readonly socket?: { readonly host?: string; readonly port?: number }
  readonly username?: string
  readonly password?: string
}

/**
 * The client makes clients of one server only together with a connection. So this makes one that connects to nowhere,
 * and only duplicates it.
 */
function plainClientOf(
  cluster: NodeRedisCluster,
  { rootNodes, defaults }: NodeRedisClusterOptions,
): NodeRedisClient {
  const [root] = rootNodes
  const url = root?.url === undefined ? undefined : new URL(root.url)
  const username = defaults?.username ?? root?.username ?? (url && decodeURIComponent(url.username)) ?? ''
  const password = defaults?.password ?? root?.password ?? (url && decodeURIComponent(url.password)) ?? ''
  const secure = url?.protocol === 'rediss:' ? { tls: true } : {}
  const twin = cluster.duplicate({
    defaults: {
      ...defaults,
      ...(username === '' ? {} : { username }),
      ...(password === '' ? {} : { password }),
      socket: { ...secure, ...defaults?.socket, reconnectStrategy: false },
    },
    nodeAddressMap: undefined,
    clientSideCache: undefined,
  }) as NodeRedisTwin
  twin.on('error', () => {})
  twin.on('node-error', () => {})
  const nowhere: NodeRedisTwinNode = { host: '127.0.0.1', port: 0, address: '127.0.0.1:0', readonly: false }
  twin.nodeClient(nowhere).catch(() => {})
  const { client } = nowhere
  if (client === undefined) throw tooOld('a cluster by redis 5 or newer', 'redis')
  client.destroy()
  return client
}

interface NodeRedisTwin {
  on(event: string, listener: () => void): unknown
  nodeClient(node: NodeRedisTwinNode): Promise<unknown>
}

interface NodeRedisTwinNode {
  readonly host: string
  readonly port: number
  readonly address: string
  readonly readonly: boolean
  client?: NodeRedisClient & { destroy(): void }
}

/** Translates the address that the cluster announces: a table or a function. */
type AddressMap =
  | Readonly<Record<string, ServerAddress>>
  | ((address: string) => ServerAddress | null | undefined)

function mapped(map: AddressMap | null | undefined, announced: ServerAddress): ServerAddress {
  const address = `${announced.host}:${announced.port}`
  const { host, port } = (typeof map === 'function' ? map(address) : map?.[address]) ?? announced
  return { host, port }
}

interface StartupNode extends ServerAddress {
  readonly username?: string
  readonly password?: string
}

/** A port, a URL, or an object, as ioredis takes them. */
function parseStartupNode(node: unknown): StartupNode {
  if (typeof node === 'object' && node !== null) return { host: '127.0.0.1', port: PORT, ...node }
  const text = String(node)
  if (/^\d+$/.test(text)) return { host: '127.0.0.1', port: Number(text) }
  const { username, password, ...address } = parseUrl(text.includes('://') ? text : `redis://${text}`)
  return { ...address, ...(username === '' ? {} : { username }), ...(password === '' ? {} : { password }) }
}

function addressOfRoot({ url, socket }: RootNode): ServerAddress {
  if (url !== undefined) {
    const { host, port } = parseUrl(url)
    return { host, port }
  }
  return { host: socket?.host ?? '127.0.0.1', port: socket?.port ?? PORT }
}

function parseUrl(text: string): { host: string; port: number; username: string; password: string } {
  const { hostname, port, username, password } = new URL(text)
  return {
    host: hostname.replace(/^\[|\]$/g, '') || '127.0.0.1',
    port: port === '' ? PORT : Number(port),
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
  }
}

const PORT = 6379
