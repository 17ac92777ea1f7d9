import { checkOptions, expected } from '../../../base/arguments.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import type { ServerAddress } from '../server/client-link.ts'
import type { IoredisClient } from '../server/ioredis.ts'
import { parseAddresses } from '../server/server-addresses.ts'
import type { SentinelSettings } from './link.ts'

/** The Sentinels that know where the master is. */
export interface SentinelOptions {
  /** The name by which the Sentinels know the master: `mymaster`. */
  readonly name: string
  /** The Sentinels themselves, all that there are. The port is 26379 where it is left out. */
  readonly nodes: readonly { readonly host: string; readonly port?: number | undefined }[]
  /** For the Sentinels, which know nothing of the users of the servers. Default: none. */
  readonly username?: string | undefined
  /** For the Sentinels. Default: none. */
  readonly password?: string | undefined
  /** For the Sentinels: true, or options of `tls.connect`. Default: false, whatever the client uses for the servers. */
  readonly tls?: object | boolean | undefined
}

export const SENTINEL_PORT = 26_379

export function parseSentinel(options: unknown): SentinelSettings {
  if (typeof options !== 'object' || options === null) {
    throw expected('sentinel', 'an object with `name` and `nodes`', options)
  }
  checkOptions(options, ['name', 'nodes', 'username', 'password', 'tls'])
  const { name, nodes, username, password, tls } = options as Partial<SentinelOptions>
  return {
    name: parseName(name),
    nodes: parseNodes('sentinel.nodes', nodes),
    access: { username, password, tls },
  }
}

/** The Sentinels that a `Redis` of ioredis was made with, if it was made with any. */
export function sentinelOf(client: IoredisClient): SentinelSettings | undefined {
  const options = client.options as {
    readonly [name in 'sentinels' | 'name' | 'role' | 'natMap' | 'sentinelTLS']?: unknown
  } & { readonly [name in 'sentinelUsername' | 'sentinelPassword']?: string | null }
  if (!options.sentinels) return undefined
  if (options.role === 'slave') {
    throw new InvalidArgumentError(
      'Expected `client` to be connected to the master, got one with the role `slave`.',
    )
  }
  const { sentinelUsername, sentinelPassword, sentinelTLS } = options
  return {
    name: parseName(options.name),
    nodes: parseNodes('sentinels', options.sentinels),
    access: {
      username: sentinelUsername ?? undefined,
      password: sentinelPassword ?? undefined,
      tls: (sentinelTLS as object | undefined) ?? undefined,
    },
    reach: reachBy(options.natMap),
  }
}

function parseName(name: unknown): string {
  if (typeof name === 'string' && name !== '') return name
  throw expected('name', 'what the Sentinels call the master, such as mymaster', name)
}

function parseNodes(option: string, nodes: unknown): readonly ServerAddress[] {
  return parseAddresses(nodes, {
    option,
    noun: 'Sentinel',
    example: { host: 'sentinel-1', port: SENTINEL_PORT },
  })
}

/** The `natMap` of ioredis: a function, or an object, from `host:port`. */
function reachBy(natMap: unknown): ((announced: ServerAddress) => ServerAddress) | undefined {
  if (typeof natMap === 'function') {
    return (announced) =>
      (natMap(`${announced.host}:${announced.port}`) as ServerAddress | undefined) ?? announced
  }
  if (typeof natMap !== 'object' || natMap === null) return undefined
  const map = natMap as Readonly<Record<string, ServerAddress>>
  return (announced) => map[`${announced.host}:${announced.port}`] ?? announced
}
