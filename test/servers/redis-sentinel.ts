import { type RedisOptions, type RedisServer, startRedis } from './redis-server.ts'
import { until } from './until.ts'

export interface SentinelOptions {
  /** How many replicas the master begins with. Default 1. */
  readonly replicas?: number
  /** The password of the master and its replicas. */
  readonly password?: string
  /** The password of the Sentinels themselves. */
  readonly sentinelPassword?: string
  /** More arguments for the master and its replicas. */
  readonly args?: readonly string[]
  /** After so long without an answer the Sentinels take the master for dead. Default: 2000. */
  readonly downAfterMs?: number
}

/** For tests in which no master ends: on a busy machine a master may be silent for seconds, and a fail-over would spoil them. */
export const PATIENT_SENTINELS: { readonly downAfterMs: number } = { downAfterMs: 60_000 }

export interface SentinelGroup extends AsyncDisposable {
  /** The name by which the Sentinels know the master. */
  readonly name: string
  readonly sentinels: readonly RedisServer[]
  /** The first master, then its replicas. A fail-over changes their roles. */
  readonly servers: readonly RedisServer[]
  readonly addresses: readonly { readonly host: string; readonly port: number }[]
  /** `redis+sentinel://…`, with the password of the servers if there is one. */
  readonly url: string
  /** The server that a majority of the Sentinels names as the master. */
  master(): Promise<RedisServer>
  /** The replicas receive no more writes of the master, and cannot connect to it again. They may still be promoted. */
  cutOffReplicas(): Promise<void>
  /**
   * From now on the Sentinels take this server for dead and cannot tell it anything, while it answers everybody else.
   * The servers need a password for this, because a server without one lets the Sentinels in.
   */
  hideFromSentinels(server: RedisServer): Promise<void>
  /**
   * Resolves with the new master once a majority of the Sentinels names a master that is not `former`, and it takes
   * writes.
   */
  successorOf(former: RedisServer): Promise<RedisServer>
  /** May be called again. */
  close(): Promise<void>
}

/**
 * A master with replicas, watched by three Sentinels of which two have to agree. Their periods are a fraction of the
 * usual ones, so a fail-over takes about three seconds.
 */
export async function startSentinels(options: SentinelOptions = {}): Promise<SentinelGroup> {
  const { replicas = 1, password, sentinelPassword, args = [], downAfterMs = 2000 } = options
  const started: RedisServer[] = []
  try {
    return await start()
  } catch (error) {
    await close()
    throw error
  }

  async function start(): Promise<SentinelGroup> {
    // Each server may have to follow another one later.
    const common: RedisOptions = {
      users: [`${WATCHER} on >${WATCHER} ~* &* +@all`],
      ...(password === undefined ? {} : { password }),
      args: [...args, '--repl-ping-replica-period', '1', ...(password ? ['--masterauth', password] : [])],
    }
    const first = keep(await startRedis(common))
    const followers = await Promise.all(
      Array.from({ length: replicas }, async () =>
        keep(await startRedis({ ...common, replicaOf: { port: first.port, ...(password && { password }) } })),
      ),
    )
    const servers = [first, ...followers]
    const config = sentinelConfig(first.port, downAfterMs)
    const sentinels = await Promise.all(
      Array.from({ length: SENTINELS }, async () =>
        keep(
          await startRedis({
            ...(sentinelPassword === undefined ? {} : { password: sentinelPassword }),
            config,
            args: ['--sentinel'],
          }),
        ),
      ),
    )
    for (const sentinel of sentinels) await sentinel.command('SENTINEL', 'DEBUG', ...FAST)
    await until('the Sentinels know each other and the replicas', async () => {
      const views = await Promise.all(sentinels.map(viewOf))
      return views.every(
        (view) =>
          view['num-other-sentinels'] === String(SENTINELS - 1) &&
          view['num-slaves'] === String(replicas) &&
          view['flags'] === 'master',
      )
    })
    const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')
    const master = async (): Promise<RedisServer> => {
      const ports = (await Promise.all(sentinels.map(portFrom))).sort()
      const port = ports[Math.floor(SENTINELS / 2)]
      const server = servers.find((each) => each.port === port)
      if (server === undefined) throw new Error(`Expected the master to be one of ours, got port ${port}`)
      return server
    }
    return {
      name: NAME,
      sentinels,
      servers,
      addresses: sentinels.map(({ port }) => ({ host: '127.0.0.1', port })),
      url: `redis+sentinel://${password === undefined ? '' : `:${encodeURIComponent(password)}@`}${hosts}/${NAME}`,
      master,
      async cutOffReplicas() {
        const source = await master()
        for (const server of servers) {
          if (server === source) continue
          await server.command('CONFIG', 'SET', 'masteruser', 'nobody')
          await server.command('CONFIG', 'SET', 'masterauth', 'nothing')
        }
        await source.command('CLIENT', 'KILL', 'TYPE', 'replica')
      },
      async hideFromSentinels(server) {
        await server.command('ACL', 'DELUSER', WATCHER)
      },
      successorOf: (former) =>
        until(
          'there is another master',
          async () => {
            const server = await master()
            // A server that is promoted closes all its connections.
            const info = server === former ? '' : await server.command('INFO', 'replication').catch(() => '')
            return String(info).includes('role:master') && server
          },
          { everyMs: 50 },
        ).catch(async (error: unknown) => {
          const known = await sentinels[0]?.command('SENTINEL', 'REPLICAS', NAME)
          const logs = sentinels.map((sentinel) => sentinel.log().slice(-1500)).join('\n')
          throw new Error(`${String(error)}: ${JSON.stringify(known)}\n${logs}`, { cause: error })
        }),
      close,
      [Symbol.asyncDispose]: close,
    }
  }

  function keep(server: RedisServer): RedisServer {
    started.push(server)
    return server
  }

  async function close(): Promise<void> {
    await Promise.all(started.map((server) => server.close()))
  }
}

const NAME = 'mymaster'
const SENTINELS = 3

/** The user name of the Sentinels on the servers, and also its password. */
const WATCHER = 'watcher'

function sentinelConfig(port: number, downAfterMs: number): string[] {
  return [
    `sentinel monitor ${NAME} 127.0.0.1 ${port} ${Math.floor(SENTINELS / 2) + 1}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
    `sentinel failover-timeout ${NAME} 2000`,
    `sentinel auth-user ${NAME} ${WATCHER}`,
    `sentinel auth-pass ${NAME} ${WATCHER}`,
  ]
}

/**
 * How often the Sentinels ask the servers and one another, in ms.
 *
 * - If one Sentinel has promoted a replica that is still a replica to the others, they demote it after four times the
 *   publish period. Its promotion is noticed within a second.
 * - While the master is down, replicas are asked for INFO once a second. A replica whose INFO is older than five times
 *   the ping period is not promoted.
 */
const FAST = [
  ...['INFO-PERIOD', 200, 'PING-PERIOD', 400, 'ASK-PERIOD', 100, 'PUBLISH-PERIOD', 400],
  // By default a Sentinel that gets no processor for two seconds takes its clock for broken, and trusts no server for
  // half a minute.
  ...['TILT-TRIGGER', 10_000, 'TILT-PERIOD', 500],
] as const

/** The fields that a Sentinel reports about the master. */
async function viewOf(sentinel: RedisServer): Promise<Record<string, string>> {
  const flat = (await sentinel.command('SENTINEL', 'MASTER', NAME)) as string[]
  return Object.fromEntries(flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : [])))
}

async function portFrom(sentinel: RedisServer): Promise<number> {
  try {
    const [, port] = (await sentinel.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME)) as string[]
    return Number(port)
  } catch {
    return 0
  }
}
