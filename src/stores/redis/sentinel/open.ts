import { given } from '../../../base/arguments.ts'
import { isDecodable } from '../../../base/text.ts'
import type { Store } from '../../../contract/store.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import { redisStore } from '../open.ts'
import type { RedisStoreOptions } from '../options.ts'
import { answering } from '../server/answering.ts'
import { newClient } from '../server/new-client.ts'
import { parametersIn, URL_OPTIONS, type UrlOptions, urlOptionsIn } from '../server/server-url.ts'
import { SENTINEL_PORT, type SentinelOptions } from './options.ts'

/**
 * A store on the master that Sentinels watch, as in `redis+sentinel://user:password@s1:26379,s2:26379/mymaster/0`. User and
 * password are those of the servers; the Sentinels' own go behind it, as in `?sentinelUsername=…&sentinelPassword=…`. With
 * `rediss+sentinel:` both speak TLS. `?prefix=app:&replicas=1` are the options of that name. Otherwise as `openRedis`.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or no client package is installed.
 * @throws {StoreError} when no Sentinel or no master is there, says anything within 5 s, or refuses.
 */
export async function openRedisSentinel(url: string, options: RedisStoreOptions = {}): Promise<Store> {
  const { serverUrl, sentinel, options: ofUrl } = parseSentinelUrl(url)
  const client = await newClient(serverUrl)
  return answering(redisStore(client, { ...ofUrl, ...given(options), sentinel }), options)
}

export interface SentinelUrl {
  /** As if the first Sentinel were the server: for the client, which is only asked for its settings. */
  readonly serverUrl: string
  readonly sentinel: SentinelOptions
  readonly options: UrlOptions
}

/** The URL itself is in no message: it may hold a password. */
export function parseSentinelUrl(url: string): SentinelUrl {
  const [, scheme = '', credentials = '', hosts, name, database = '0', query = ''] = PATTERN.exec(url) ?? []
  if (hosts === undefined || name === undefined) {
    throw new InvalidArgumentError(
      `${EXPECTED}, got one without the hosts of the Sentinels or the name of the master.`,
    )
  }
  const parameters = parametersIn(query)
  for (const parameter of parameters.keys()) {
    if (!PARAMETERS.includes(parameter)) {
      // Not even its name is in the message: it may be the end of a password with an & in it.
      throw new InvalidArgumentError(
        `Expected what follows the ? of \`url\` to be among ${PARAMETERS.join(', ')}, got something else.`,
      )
    }
  }
  if (!isDecodable(credentials + name)) {
    throw new InvalidArgumentError(`${EXPECTED}, got one that has a % that is not written as %25.`)
  }
  const nodes = hosts.split(',').map(nodeOf)
  const [{ host, port }] = nodes as [{ host: string; port: number }]
  return {
    serverUrl: `${scheme.toLowerCase()}://${credentials}${host.includes(':') ? `[${host}]` : host}:${port}/${database}`,
    sentinel: {
      name: decodeURIComponent(name),
      nodes,
      username: parameters.get('sentinelUsername') ?? undefined,
      password: parameters.get('sentinelPassword') ?? undefined,
      tls: scheme.toLowerCase() === 'rediss',
    },
    options: urlOptionsIn(parameters),
  }
}

const PATTERN = /^(rediss?)\+sentinel:\/\/([^@/?#]*@)?([^@/?#]+)\/([^/?#]+)(?:\/(\d*))?(?:\?(.*))?$/i
const EXPECTED = 'Expected `url` to be like redis+sentinel://user:password@host:26379,host:26379/mymaster/0'
const PARAMETERS: readonly string[] = [...URL_OPTIONS, 'sentinelUsername', 'sentinelPassword']

function nodeOf(text: string): { readonly host: string; readonly port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? []
  const host = bracketed ?? plain
  const port = Number(digits ?? SENTINEL_PORT)
  if (host !== undefined && port > 0 && port < 65_536) return { host, port }
  throw new InvalidArgumentError(`${EXPECTED}, got one whose hosts are not like host:26379.`)
}
