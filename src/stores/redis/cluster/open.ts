import { given } from '../../../base/arguments.ts'
import { isDecodable } from '../../../base/text.ts'
import type { Store } from '../../../contract/store.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import { type RedisStoreOptions, settingsOf } from '../options.ts'
import { storeOf } from '../redis-store.ts'
import { answering } from '../server/answering.ts'
import type { ServerAddress } from '../server/client-link.ts'
import { linksOf } from '../server/links-of.ts'
import { newClient } from '../server/new-client.ts'
import { parametersIn, URL_OPTIONS, type UrlOptions, urlOptionsIn } from '../server/server-url.ts'

/**
 * A store on a Redis Cluster, as in `redis+cluster://user:password@host:7000,host:7001`: some of its servers, which tell of the
 * others. With `rediss+cluster:` all of them speak TLS. `?prefix=app:&replicas=1` are the options of that name.
 * Otherwise as `openRedis`.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or no client package is installed.
 * @throws {StoreError} when none of the servers is there, they say nothing for 5 s, or refuse.
 */
export async function openRedisCluster(url: string, options: RedisStoreOptions = {}): Promise<Store> {
  const { serverUrl, seeds, options: ofUrl } = parseClusterUrl(url)
  const settings = settingsOf({ ...ofUrl, ...given(options) })
  // Never connected itself, and so not to the first of the servers either.
  const client = await newClient(serverUrl)
  const link = { keyPrefix: '', seeds, linkTo: linksOf(client) }
  return answering(storeOf(link, settings), options)
}

export interface ClusterUrl {
  readonly serverUrl: string
  readonly seeds: readonly ServerAddress[]
  readonly options: UrlOptions
}

/** The URL itself is in no message: it may hold a password. */
export function parseClusterUrl(url: string): ClusterUrl {
  const [, scheme = '', credentials = '', hosts, path = '', query = ''] = PATTERN.exec(url) ?? []
  if (hosts === undefined) {
    throw new InvalidArgumentError(`${EXPECTED}, got one without hosts, or with something behind them.`)
  }
  const parameters = parametersIn(query)
  if (path !== '' || parameters.has('db')) throw new InvalidArgumentError(NO_DATABASE)
  for (const parameter of parameters.keys()) {
    if (URL_OPTIONS.includes(parameter)) continue
    // Not even its name is in the message: it may be the end of a password with an & in it.
    throw new InvalidArgumentError(
      `Expected what follows the ? of \`url\` to be among ${URL_OPTIONS.join(', ')}, got something else.`,
    )
  }
  if (!isDecodable(credentials)) {
    throw new InvalidArgumentError(`${EXPECTED}, got one that has a % that is not written as %25.`)
  }
  const seeds = hosts.split(',').map(addressOf)
  const [{ host, port }] = seeds as [ServerAddress]
  return {
    serverUrl: `${scheme.toLowerCase()}://${credentials}${host.includes(':') ? `[${host}]` : host}:${port}`,
    seeds,
    options: urlOptionsIn(parameters),
  }
}

const PATTERN = /^(rediss?)\+cluster:\/\/([^@/?#]*@)?([^@/?#]+)(?:\/(\d*))?(?:\?(.*))?$/i
const EXPECTED = 'Expected `url` to be like redis+cluster://user:password@host:7000,host:7001'
const NO_DATABASE = 'Expected `url` to name no database, as a Redis Cluster has only one, got one.'
const PORT = 6379

function addressOf(text: string): ServerAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? []
  const host = bracketed ?? plain
  const port = Number(digits ?? PORT)
  if (host !== undefined && port > 0 && port < 65_536) return { host, port }
  throw new InvalidArgumentError(`${EXPECTED}, got one whose hosts are not like host:7000.`)
}
