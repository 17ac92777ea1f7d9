import { join } from 'node:path'
import { age } from '../stores/redlock/masters.ts'
import { startEtcd } from './etcd-server.ts'
import { namespacesMissing, startNamespace } from './namespaces.ts'
import { startPostgres } from './postgres-server.ts'
import { PATIENT_MASTERS, startCluster } from './redis-cluster.ts'
import { startRedis } from './redis-server.ts'
import { startProxy } from './tcp-proxy.ts'

/** A store that several processes reach by its URL. */
export interface Place {
  readonly url: string
  /**
   * Another way to the store, which a test can cut. Undefined if there is no network, or this machine cannot cut it.
   */
  readonly through: Way | undefined
  close(): Promise<unknown>
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
export const places: Readonly<Record<string, (folder: string) => Promise<Place>>> = {
  async etcd() {
    const server = await startEtcd()
    return behindProxies([server], server.url.replace('http:', 'etcd:'))
  },
  async redis() {
    const server = await startRedis()
    return behindProxies([server], server.url)
  },
  async cluster() {
    if (namespacesMissing() !== undefined) {
      const cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
      return { url: cluster.url, through: undefined, close: () => cluster.close() }
    }
    // The servers of a cluster tell their addresses themselves, so no proxy can stand in between. They are at the end
    // of the cable instead.
    const network = await startNamespace()
    const { host, exec, cut, mend } = network
    const address = ['--bind', '127.0.0.1', host, '--cluster-announce-ip', host, '--protected-mode', 'no']
    const cluster = await startCluster({ replicas: 0, args: [...PATIENT_MASTERS, ...address] })
    const url = cluster.url.replaceAll('127.0.0.1', host)
    return { url, through: { url, exec, cut, mend }, close: () => closeAll([cluster, network]) }
  },
  async redlock() {
    const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
    await Promise.all(servers.map(age))
    return behindProxies(servers, `redlock:${servers.map(({ url }) => url).join(',')}`)
  },
  async postgres() {
    const server = await startPostgres()
    return behindProxies([server], server.url)
  },
  async sqlite(folder) {
    return { url: `sqlite:${join(folder, 'locks.db')}`, through: undefined, close: async () => {} }
  },
}

async function behindProxies(
  servers: readonly ({ readonly port: number } & AsyncDisposable)[],
  url: string,
): Promise<Place> {
  const network = namespacesMissing() === undefined ? await startNamespace() : undefined
  const host = network?.host ?? '127.0.0.1'
  const proxies = await Promise.all(servers.map(({ port }) => startProxy({ targetPort: port, host })))
  const through = servers.reduce(
    (text, { port }, at) => text.replace(`127.0.0.1:${port}`, `${host}:${proxies[at]?.port}`),
    url,
  )
  const { exec, cut, mend } = network ?? {
    exec: [],
    cut: () => {
      for (const proxy of proxies) proxy.halfOpen()
    },
    mend: () => {
      for (const proxy of proxies) proxy.normal()
    },
  }
  return {
    url,
    through: { url: through, exec, cut, mend },
    close: () => closeAll([...proxies, ...servers, ...(network === undefined ? [] : [network])]),
  }
}

function closeAll(all: readonly AsyncDisposable[]): Promise<unknown> {
  return Promise.all(all.map((one) => one[Symbol.asyncDispose]()))
}
