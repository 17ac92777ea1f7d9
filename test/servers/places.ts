import { join } from 'node:path'
import { age } from '../stores/redlock/masters.ts'
import { startEtcd } from './etcd-server.ts'
import { startPostgres } from './postgres-server.ts'
import { startCluster } from './redis-cluster.ts'
import { startRedis } from './redis-server.ts'
import { type FaultProxy, startProxy } from './tcp-proxy.ts'

/** A store that several processes reach by its URL. */
export interface Place {
  readonly url: string
  /** Another way there, which can be cut; none where there is no network, or where its servers name their addresses themselves. */
  readonly through: { readonly url: string; readonly faults: readonly FaultProxy[] } | undefined
  close(): Promise<unknown>
}

/** Every store that more than one process can share, by name; an empty folder is for those that keep files. Those first that take longest. */
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
    const cluster = await startCluster({ replicas: 0 })
    return { url: cluster.url, through: undefined, close: () => cluster.close() }
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
  servers: readonly { readonly port: number; close(): Promise<void> }[],
  url: string,
): Promise<Place> {
  const faults = await Promise.all(servers.map(({ port }) => startProxy({ targetPort: port })))
  const through = servers.reduce(
    (text, { port }, at) => text.replace(`:${port}`, `:${faults[at]?.port}`),
    url,
  )
  return {
    url,
    through: { url: through, faults },
    close: () => Promise.all([...faults, ...servers].map((one) => one.close())),
  }
}
