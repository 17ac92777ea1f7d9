import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ensureBinary } from './install.ts'
import { type RedisOptions, type RedisServer, startRedis } from './redis-server.ts'
import { type RespValue, sendCommand } from './resp.ts'
import { until } from './until.ts'

export interface ClusterOptions {
  /** How many replicas each of the three masters has. Default: 1. */
  readonly replicas?: 0 | 1
  readonly password?: string
  /** More arguments for each server. */
  readonly args?: readonly string[]
}

export interface RedisCluster extends AsyncDisposable {
  /** All servers. A fail-over changes which of them are masters. */
  readonly servers: readonly RedisServer[]
  readonly addresses: readonly { readonly host: string; readonly port: number }[]
  /** `redis+cluster://…`, with the password if there is one. */
  readonly url: string
  /** The masters that have slots, in the order of their ports, once all of them answer. */
  masters(): Promise<readonly RedisServer[]>
  /** The master that has the slot of this Redis key. */
  masterOf(key: string): Promise<RedisServer>
  /** A replica of this master. */
  replicaOf(master: RedisServer): Promise<RedisServer>
  /** Resolves with the new master of the key's slot, once every living server knows it and it is not `former`. */
  successorOf(former: RedisServer, key: string): Promise<RedisServer>
  /**
   * Lets the master of the key's slot and its replica change places, as for maintenance. Resolves with the new master.
   */
  handOver(key: string): Promise<RedisServer>
  /** Begins to move the slot of this key to another master, a step at a time: see {@link SlotMove}. */
  beginMove(key: string, target: RedisServer): Promise<SlotMove>
  /** Sends a command to every living master. */
  command(...args: readonly string[]): Promise<readonly RespValue[]>
  /** May be called again. */
  close(): Promise<void>
}

/** A move as `redis-cli --cluster reshard` makes it, but step by step, so that a test can act in between. */
export interface SlotMove {
  /** Moves one key of the slot. Resolves with its name, or with undefined if the slot has none left. */
  moveKey(name?: string): Promise<string | undefined>
  /** Moves all other keys, and tells all masters. */
  finish(): Promise<void>
}

/** For tests in which no master ends: a cluster on a busy machine does not take a silent master for a dead one. */
export const PATIENT_MASTERS: readonly string[] = ['--cluster-node-timeout', '15000']

/**
 * Three masters with a replica each, made by `redis-cli --cluster create`. A master that is silent for a second is
 * replaced.
 */
export async function startCluster(options: ClusterOptions = {}): Promise<RedisCluster> {
  const { replicas = 1, password, args = [] } = options
  ensureBinary('redis-server')
  const servers: RedisServer[] = []
  const secret = password === undefined ? {} : { password }
  try {
    const count = MASTERS * (1 + replicas)
    await Promise.all(
      Array.from({ length: count }, async () => {
        servers.push(await startRedis(serverOptions({ ...secret, args })))
      }),
    )
    await create()
  } catch (error) {
    await close()
    throw error
  }
  const host = '127.0.0.1'
  const addresses = servers.map(({ port }) => ({ host, port }))
  return {
    servers,
    addresses,
    url: `redis+cluster://${password === undefined ? '' : `:${encodeURIComponent(password)}@`}${servers
      .map(({ port }) => `${host}:${port}`)
      .join(',')}`,
    masters,
    masterOf,
    replicaOf: (master) =>
      // On a busy machine all servers may take longer than the limit after which a server counts as hung.
      until(`port ${master.port} has a replica`, async () => {
        const [replica] = await rolesOf(await living(), ({ masterPort }) => masterPort === master.port)
        return replica
      }),
    successorOf: (former, key) =>
      until('there is another master', () => successor(former, key), { everyMs: 50 }),
    async handOver(key) {
      const former = await masterOf(key)
      let asks = 0
      return until(
        'the replica has taken over',
        async () => {
          // On a busy machine the vote may come too late, or the replica may not be ready.
          if (asks % 50 === 0) {
            const [replica] = await rolesOf(await living(), ({ masterPort }) => masterPort === former.port)
            await replica?.command('CLUSTER', 'FAILOVER').catch(() => {})
          }
          asks += 1
          return successor(former, key)
        },
        { everyMs: 50 },
      )
    },
    beginMove,
    async command(...command) {
      return Promise.all((await masters()).map((server) => server.command(...command)))
    },
    close,
    [Symbol.asyncDispose]: close,
  }

  /** The master of the key's slot, once all living servers agree on it, and if it is not `former`. */
  async function successor(former: RedisServer, key: string): Promise<RedisServer | undefined> {
    const owners = new Set(await Promise.all((await living()).map((server) => ownerPort(server, key))))
    const [port] = owners
    return owners.size === 1 && port !== former.port
      ? servers.find((server) => server.port === port)
      : undefined
  }

  async function create(): Promise<void> {
    await promisify(execFile)(
      'redis-cli',
      [
        ...(password === undefined ? [] : ['-a', password, '--no-auth-warning']),
        '--cluster',
        'create',
        ...servers.map(({ port }) => `127.0.0.1:${port}`),
        ...['--cluster-replicas', String(replicas), '--cluster-yes'],
      ],
      { timeout: 60_000 },
    )
    await until(
      'every server says that the cluster is fine',
      async () => {
        const states = await Promise.all(servers.map(isFine))
        return states.every((fine) => fine)
      },
      { everyMs: 50 },
    )
  }

  async function isFine(server: RedisServer): Promise<boolean> {
    const info = String(await server.command('CLUSTER', 'INFO'))
    if (!/cluster_state:ok/.test(info) || !info.includes(`cluster_known_nodes:${servers.length}\r`))
      return false
    const replication = String(await server.command('INFO', 'replication'))
    return /role:master/.test(replication)
      ? replication.includes(`connected_slaves:${replicas}\r`) || replication.includes('connected_slaves:0')
      : replication.includes('master_link_status:up')
  }

  async function masters(): Promise<readonly RedisServer[]> {
    // On a busy machine a master may take longer than the limit after which a server counts as hung.
    const found = await until('all masters answer', async () => {
      const asked = await living()
      const answering = await rolesOf(asked, ({ slots, myself }) => myself && slots)
      const known = await rolesOf(asked, ({ slots }) => slots)
      return answering.length > 0 && answering.length === known.length && answering
    })
    return found.sort((one, other) => one.port - other.port)
  }

  /** The servers that answer. */
  async function living(): Promise<readonly RedisServer[]> {
    const answers = await Promise.all(
      servers.map(async (server) => {
        try {
          await sendCommand({ port: server.port, password, timeoutMs: 500 }, ['PING'])
          return server
        } catch {
          return undefined
        }
      }),
    )
    return answers.filter((server) => server !== undefined)
  }

  /** The servers for which at least one of the asked servers reports a line that `is` accepts. */
  async function rolesOf(
    asked: readonly RedisServer[],
    is: (line: NodeLine) => boolean,
  ): Promise<RedisServer[]> {
    const lines = (await Promise.all(asked.map(linesOf))).flat()
    const ports = new Set(lines.filter(is).map(({ port }) => port))
    return servers.filter(({ port }) => ports.has(port))
  }

  async function masterOf(key: string): Promise<RedisServer> {
    // On a busy machine all servers may take longer than the limit after which a server counts as hung.
    const any = await until('a server answers', async () => (await living())[0])
    const port = await ownerPort(any, key)
    const server = servers.find((each) => each.port === port)
    if (server === undefined) throw new Error(`Expected a master to have the slot of ${key}, got none`)
    return server
  }

  async function beginMove(key: string, target: RedisServer): Promise<SlotMove> {
    const slot = String(await target.command('CLUSTER', 'KEYSLOT', key))
    const source = await masterOf(key)
    const [from, to] = [await idOf(source), await idOf(target)]
    await target.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from)
    await source.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to)
    const moveKey = async (wanted?: string): Promise<string | undefined> => {
      const names = (await source.command('CLUSTER', 'GETKEYSINSLOT', slot, '100')) as string[]
      const name = wanted ?? names[0]
      if (name === undefined) return undefined
      const login = password === undefined ? [] : ['AUTH', password]
      await source.command('MIGRATE', '127.0.0.1', target.port, name, '0', '5000', ...login)
      return name
    }
    return {
      moveKey,
      async finish() {
        // The slot's migrating flag sends new keys to the target, so no client adds keys here meanwhile.
        while ((await moveKey()) !== undefined);
        for (const server of [target, source, ...(await masters())]) {
          await server.command('CLUSTER', 'SETSLOT', slot, 'NODE', to)
        }
      },
    }
  }

  async function close(): Promise<void> {
    await Promise.all(servers.map((server) => server.close()))
  }
}

const MASTERS = 3

function serverOptions({ password, args }: { password?: string; args: readonly string[] }): RedisOptions {
  return {
    ...(password === undefined ? {} : { password }),
    isMember: true,
    args: [
      ...['--cluster-node-timeout', '1000'],
      // A replica stands for election whenever its master is gone, however long ago it last heard of the master.
      ...['--cluster-replica-validity-factor', '0', '--cluster-migration-barrier', '9'],
      ...['--repl-ping-replica-period', '1', ...(password === undefined ? [] : ['--masterauth', password])],
      ...args,
    ],
  }
}

interface NodeLine {
  readonly port: number
  readonly myself: boolean
  readonly masterPort: number | undefined
  readonly slots: boolean
}

async function linesOf(server: RedisServer): Promise<NodeLine[]> {
  const fields = String(await server.command('CLUSTER', 'NODES'))
    .trim()
    .split('\n')
    .map((line) => line.split(' '))
  const portOf = (address = ''): number => Number(/:(\d+)@/.exec(address)?.[1])
  const ports = new Map(fields.map(([id = '', address]) => [id, portOf(address)]))
  return fields
    .filter(([, , flags = '']) => !flags.split(',').includes('fail'))
    .map(([, address, flags = '', master = '', ...rest]) => ({
      port: portOf(address),
      myself: flags.includes('myself'),
      masterPort: ports.get(master),
      slots: rest.length > 4,
    }))
}

async function idOf(server: RedisServer): Promise<string> {
  return String(await server.command('CLUSTER', 'MYID'))
}

async function ownerPort(server: RedisServer, key: string): Promise<number | undefined> {
  const slot = Number(await server.command('CLUSTER', 'KEYSLOT', key))
  const ranges = (await server.command('CLUSTER', 'SLOTS')) as [number, number, [string, number]][]
  return ranges.find(([from, to]) => from <= slot && slot <= to)?.[2][1]
}
