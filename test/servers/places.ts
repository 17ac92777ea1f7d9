import { join } from 'node:path'
import { age } from '../stores/redlock/masters.ts'
import { startEtcd } from './etcd-server.ts'
import { namespacesMissing, startNamespace } from './namespaces.ts'
import { startPostgres } from './postgres-server.ts'
import { PATIENT_MASTERS, startCluster } from './redis-cluster.ts'
import { PATIENT_SENTINELS, startSentinels } from './redis-sentinel.ts'
import { startRedis } from './redis-server.ts'
import { startProxy } from './tcp-proxy.ts'

/** A store that several processes reach by its URL. */
export interface Place {
  readonly url: string
  /**
   * Another way to the store, which a test can cut. Undefined if nobody asked for it, there is no network, or this machine cannot cut it.
   */
  readonly through: Way | undefined
  close(): Promise<unknown>
}

export interface PlaceOptions {
  /** Whether to make another way to the store. Default: false. */
  readonly canCut?: boolean
}

/**
 * A way to a store: a cable of its own if the machine makes network namespaces, otherwise TCP proxies that fall silent.
 */
export interface Way {
  readonly url: string
  /** The start of a command line whose process takes this way. */
  readonly exec: readonly string[]
  /** From now on no byte gets through in either direction, and neither side is told. */
  cut(): void
  mend(): void
}

/**
 * Every store that several processes can share, by name. Stores that keep files use the empty folder. The stores whose
 * tests take longest come first.
 */
export const places: Readonly<Record<string, (folder: string, options?: PlaceOptions) => Promise<Place>>> = {
  async etcd(_, options) {
    const server = await startEtcd()
    return placeOf([server], server.url.replace('http:', 'etcd:'), options)
  },
  async redis(_, options) {
    const server = await startRedis()
    return placeOf([server], server.url, options)
  },
  async cluster(_, options) {
    const cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
    return tellingPlaceOf(cluster, cluster.addresses, options)
  },
  async redlock(_, options) {
    const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
    await Promise.all(servers.map(age))
    return placeOf(servers, `redlock:${servers.map(({ url }) => url).join(',')}`, options)
  },
  async postgres(_, options) {
    const server = await startPostgres()
    return placeOf([server], server.url, options)
  },
  async sqlite(folder) {
    return { url: `sqlite:${join(folder, 'locks.db')}`, through: undefined, close: async () => {} }
  },
}

/** A master that Sentinels watch, without replicas. */
export async function sentinelPlace(options?: PlaceOptions): Promise<Place> {
  const group = await startSentinels({ ...PATIENT_SENTINELS, replicas: 0 })
  return tellingPlaceOf(group, [...group.servers, ...group.sentinels], options)
}

/** Such servers tell clients their addresses, so no proxy can stand in between. */
async function tellingPlaceOf(
  group: AsyncDisposable & { readonly url: string },
  servers: readonly { readonly port: number }[],
  { canCut = false }: PlaceOptions = {},
): Promise<Place> {
  const { url } = group
  if (!canCut || namespacesMissing() !== undefined)
    return { url, through: undefined, close: () => closeAll([group]) }
  const network = await startNamespace()
  const ports = servers.map(({ port }) => port)
  await network.expose(ports, { asLocal: true })
  const { exec, cut, mend } = network
  return { url, through: { url, exec, cut, mend }, close: () => closeAll([group, network]) }
}

async function placeOf(
  servers: readonly ({ readonly port: number } & AsyncDisposable)[],
  url: string,
  { canCut = false }: PlaceOptions = {},
): Promise<Place> {
  if (!canCut) return { url, through: undefined, close: () => closeAll(servers) }
  if (namespacesMissing() === undefined) {
    const network = await startNamespace()
    const { host, exec, cut, mend } = network
    await network.expose(servers.map(({ port }) => port))
    const through = { url: url.replaceAll('127.0.0.1', host), exec, cut, mend }
    return { url, through, close: () => closeAll([...servers, network]) }
  }
  const proxies = await Promise.all(servers.map(({ port }) => startProxy({ targetPort: port })))
  const through = servers.reduce(
    (text, { port }, at) => text.replace(`127.0.0.1:${port}`, `127.0.0.1:${proxies[at]?.port}`),
    url,
  )
  const cut = () => {
    for (const proxy of proxies) proxy.halfOpen()
  }
  const mend = () => {
    for (const proxy of proxies) proxy.normal()
  }
  return {
    url,
    through: { url: through, exec: [], cut, mend },
    close: () => closeAll([...proxies, ...servers]),
  }
}

function closeAll(all: readonly AsyncDisposable[]): Promise<unknown> {
  return Promise.all(all.map((one) => one[Symbol.asyncDispose]()))
}
