import { Redis } from 'ioredis'
import pg from 'pg'
import postgres from 'postgres'
import { createClient } from 'redis'
import type { Store } from '../../src/contract/store.ts'
import type { PostgresPool } from '../../src/postgres/connections.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { redlockStore } from '../../src/stores/redlock/index.ts'
import { startEtcd } from '../servers/etcd-server.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startCluster } from '../servers/redis-cluster.ts'
import { PATIENT_SENTINELS, type SentinelGroup, startSentinels } from '../servers/redis-sentinel.ts'
import { startRedis } from '../servers/redis-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { clients } from '../stores/redis/clients.ts'
import { clusterClients } from '../stores/redis/cluster/clients.ts'
import { age } from '../stores/redlock/masters.ts'

/** A store whose servers, or the way to them, can fall silent: connections are accepted, and no answer ever comes. */
export interface SilentPlace extends AsyncDisposable {
  /** The store of one more process. It does not connect before its first request. */
  open(): Store
  beSilent(): unknown
  /** From now on new connections get answers. */
  speak(): unknown
}

/** The part of a test server that is needed to let it hang. */
interface Hanging extends AsyncDisposable {
  readonly port: number
  pause(): Promise<void>
  resume(): void
}

type Way = 'hangs' | 'is cut off'

/** The server stops. When it goes on, it answers the requests of the meantime late. */
async function hanging(servers: readonly Hanging[], open: () => Store): Promise<SilentPlace> {
  return {
    open,
    beSilent: () => Promise.all(servers.map((server) => server.pause())),
    speak: () => {
      for (const server of servers) server.resume()
    },
    [Symbol.asyncDispose]: () => disposeAll(servers),
  }
}

/**
 * The network swallows everything. Connections from before never carry a byte again, as behind a firewall that has
 * forgotten them.
 */
async function cutOff(
  servers: readonly Hanging[],
  open: (ports: readonly number[]) => Store,
): Promise<SilentPlace> {
  const proxies = await Promise.all(servers.map(({ port }) => startProxy({ targetPort: port })))
  return {
    open: () => open(proxies.map(({ port }) => port)),
    beSilent: () => {
      for (const proxy of proxies) proxy.halfOpen()
    },
    speak: () => {
      for (const proxy of proxies) proxy.strand()
    },
    [Symbol.asyncDispose]: () => disposeAll([...proxies, ...servers]),
  }
}

async function disposeAll(all: readonly AsyncDisposable[]): Promise<void> {
  await Promise.all(all.map((each) => each[Symbol.asyncDispose]()))
}

function placeOf(
  servers: readonly Hanging[],
  way: Way,
  open: (ports: readonly number[]) => Store,
): Promise<SilentPlace> {
  const ports = servers.map(({ port }) => port)
  return way === 'hangs' ? hanging(servers, () => open(ports)) : cutOff(servers, open)
}

type Start = () => Promise<SilentPlace>

/** Every store that is reached by a network, by each of its client packages. */
export const silentPlaces: Readonly<Record<string, Start>> = {
  ...bothWays('PostgreSQL by pg', (way) =>
    postgresPlace(way, (url) => new pg.Pool({ connectionString: url })),
  ),
  ...bothWays('PostgreSQL by postgres.js', (way) => postgresPlace(way, (url) => postgres(url))),
  ...Object.assign(
    {},
    ...Object.entries(clients).map(([name, newClient]) =>
      bothWays(`Redis by ${name}`, async (way) =>
        placeOf([await startRedis()], way, ([port]) => redisStore(newClient(urlAt(port)))),
      ),
    ),
  ),
  'Redis with Sentinels by ioredis 5 hangs': () =>
    sentinelPlace(({ addresses, name }) =>
      redisStore(new Redis({ sentinels: [...addresses], name, lazyConnect: true })),
    ),
  'Redis with Sentinels by redis 5 hangs': () =>
    sentinelPlace(({ addresses, name }) =>
      redisStore(createClient(), { sentinel: { name, nodes: addresses } }),
    ),
  ...Object.fromEntries(
    Object.entries(clusterClients).map(([name, newClient]) => [
      `Redis Cluster by ${name} hangs`,
      async () => {
        const cluster = await startCluster({ replicas: 0 })
        return hanging(cluster.servers, () => redisStore(newClient(cluster)))
      },
    ]),
  ),
  ...bothWays('Redlock', async (way) => {
    const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
    await Promise.all(servers.map(age))
    return placeOf(servers, way, (ports) =>
      redlockStore(
        ports.map((port) => new Redis(urlAt(port), { lazyConnect: true })),
        { maxTtl: '10m' },
      ),
    )
  }),
  ...bothWays('etcd', async (way) =>
    placeOf([await startEtcd()], way, ([port]) => etcdStore({ endpoints: [`http://127.0.0.1:${port}`] })),
  ),
}

function bothWays(name: string, start: (way: Way) => Promise<SilentPlace>): Record<string, Start> {
  return {
    [`${name} hangs`]: () => start('hangs'),
    [`${name} is cut off`]: () => start('is cut off'),
  }
}

async function postgresPlace(way: Way, newClient: (url: string) => PostgresPool): Promise<SilentPlace> {
  const server = await startPostgres()
  return placeOf([server], way, ([port]) =>
    postgresStore(newClient(server.url.replace(`:${server.port}/`, `:${port}/`))),
  )
}

async function sentinelPlace(open: (group: SentinelGroup) => Store): Promise<SilentPlace> {
  const group = await startSentinels(PATIENT_SENTINELS)
  return hanging([...group.sentinels, ...group.servers], () => open(group))
}

function urlAt(port: number | undefined): string {
  return `redis://127.0.0.1:${port}`
}
