import { checkOptions } from '../../base/arguments.ts'
import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { paused, systemClock } from '../../base/clock.ts'
import { milliseconds } from '../../base/diagnosis.ts'
import { type Duration, parseDuration, WAIT_RANGE } from '../../base/duration.ts'
import { within } from '../../base/within.ts'
import { isHoldfastError, StoreError } from '../../errors.ts'
import type { IoredisClient } from '../redis/server/ioredis.ts'
import { newClient } from '../redis/server/new-client.ts'
import type { NodeRedisClient } from '../redis/server/node-redis.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import { RoomRequests } from '../redis/server/room-requests.ts'
import { SingleServer } from '../redis/server/single-server.ts'
import { linksOfAll } from './links.ts'
import { parseOptions, type RedlockStoreOptions } from './options.ts'
import { votingScripts } from './scripts.ts'
import { twiceError } from './server-identity.ts'
import { type FirstLook, ServerScripts } from './server-scripts.ts'
import { SharedLink } from './shared-link.ts'
import { parseRedlockUrl } from './url.ts'

/** As for `redlockStore`, and how long to wait for the servers. */
export interface RedlockInitOptions extends Pick<RedlockStoreOptions, 'prefix' | 'maxTtl'> {
  /** How long to wait for servers that do not answer yet, because they are being started. Default: 10 s. */
  readonly wait?: Duration | undefined
}

/** What {@link initRedlock} has done. */
export interface RedlockInit {
  /** How many servers there are. */
  readonly servers: number
  /** Whether the servers were new, and their votes count now. `false`: most votes counted already, and nothing was changed. */
  readonly written: boolean
}

/**
 * Says that these Redis servers are new: no process has ever had a lock on them. Their votes count at once then, and the first
 * lock need not wait for `maxTtl`. For the start of a deployment, a compose file and CI, **before** any process uses the
 * servers. If a process still holds a lock that all servers have forgotten, another process can get the same lock.
 *
 * It writes only if all servers answer, and none has keys of Holdfast: neither the note since when the server remembers
 * everything, nor a fence, nor a room. It may be called again: if the votes of most servers count already, it changes nothing.
 *
 * Takes the URL that `connect` takes, or the clients and options of `redlockStore`.
 *
 * ```ts
 * import { initRedlock } from 'holdfast/redlock'
 *
 * const { written } = await initRedlock('redlock:redis://a:6379,redis://b:6379,redis://c:6379', { wait: '30s' })
 * console.log(written ? 'The servers are ready.' : 'The servers were ready.')
 * ```
 *
 * @throws {InvalidArgumentError} when the URL, the clients or an option are not what they should be.
 * @throws {StoreError} `store-unavailable` when a server does not answer within `wait`; `store-refused` when a server refuses,
 * or may have been used before. The message says which server, and for how long its vote does not count.
 */
export async function initRedlock(
  servers: string | readonly (IoredisClient | NodeRedisClient)[],
  options: RedlockInitOptions = {},
): Promise<RedlockInit> {
  checkOptions(options, ['prefix', 'maxTtl', 'wait'])
  const { wait = 10_000, ...rest } = options
  const waitMs = parseDuration('wait', wait, WAIT_RANGE)
  const { clients, options: ofUrl } = await clientsOf(servers)
  const { prefix, maxTtlMs } = parseOptions({ ...ofUrl, ...rest })
  const newServers = linksOfAll(clients).map(
    (link) => new NewServer(new SharedLink(link), { prefix, maxTtlMs }),
  )
  const ending = new AbortController()
  const given = { until: performance.now() + waitMs, ending: ending.signal }
  try {
    const seen = await Promise.all(newServers.map((server, index) => seenBy(server, index, given)))
    checkDistinct(seen)
    const leftMs = forgetfulMs(seen, maxTtlMs)
    if (leftMs <= 0) return { servers: seen.length, written: false }
    if (seen.every(({ tag }) => tag === 'known')) throw refusal(young(leftMs))
    checkNew(seen)
    const written = await Promise.all(newServers.map((server, index) => writtenBy(server, index)))
    // A process has connected meanwhile, or two addresses lead to one server that does not tell its run id.
    checkNew(written)
    return { servers: seen.length, written: true }
  } finally {
    ending.abort()
    for (const server of newServers) server.close()
  }
}

async function clientsOf(servers: string | readonly (IoredisClient | NodeRedisClient)[]): Promise<{
  readonly clients: readonly (IoredisClient | NodeRedisClient)[]
  readonly options: RedlockInitOptions
}> {
  if (typeof servers !== 'string') return { clients: servers, options: {} }
  const { servers: urls, options } = parseRedlockUrl(servers)
  return { clients: await Promise.all(urls.map((url) => newClient(url))), options }
}

class NewServer {
  readonly #link: SharedLink
  readonly #scripts: ServerScripts
  readonly #names: RoomNames

  constructor(link: SharedLink, options: { readonly prefix: string; readonly maxTtlMs: number }) {
    this.#link = link
    this.#scripts = new ServerScripts(link, options)
    this.#names = new RoomNames(link.keyPrefix + options.prefix)
  }

  look({ write }: { readonly write: boolean }): Promise<FirstLook> {
    return within(LIMIT_MS, this.#scripts.init({ write }))
  }

  /** Whether there is a holder or a waiter of any key. */
  async hasRooms(): Promise<boolean> {
    const server = new SingleServer(this.#link, { names: this.#names, replicas: 0, scripts: votingScripts })
    const rooms = new RoomRequests(server, this.#names)
    let cursor: string | undefined
    do {
      const page = await within(LIMIT_MS, rooms.inspect({ prefix: '', cursor, count: 1 }))
      if (page.rooms.length > 0) return true
      cursor = page.next
    } while (cursor !== undefined)
    return false
  }

  /** The next request opens another connection. */
  close(): void {
    this.#link.replace()
  }
}

/** What one server says, as soon as it answers. */
async function seenBy(
  server: NewServer,
  index: number,
  { until, ending }: { readonly until: number; readonly ending: AbortSignal },
): Promise<FirstLook> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const seen = await server.look({ write: false })
      return seen.tag === 'new' && (await server.hasRooms()) ? { ...seen, tag: 'used' } : seen
    } catch (cause) {
      const pauseMs = backoffMs(PAUSES, attempt)
      if (isHoldfastError(cause, 'store-refused') || performance.now() + pauseMs > until) {
        throw failure(cause, index, 'Nothing was written.')
      }
      server.close()
      // Another server has refused, so nobody waits for this one any more.
      if (ending.aborted) throw cause
      await paused(systemClock, pauseMs, ending)
      if (ending.aborted) throw cause
    }
  }
}

async function writtenBy(server: NewServer, index: number): Promise<FirstLook> {
  try {
    return await server.look({ write: true })
  } catch (cause) {
    throw failure(cause, index, 'Other servers may have their note already. Call it again.')
  }
}

function failure(cause: unknown, index: number, rest: string): StoreError {
  const code = isHoldfastError(cause, 'store-refused') ? 'store-refused' : 'store-unavailable'
  const why = cause instanceof Error ? cause.message : 'No answer.'
  return new StoreError(code, `Redis server ${index + 1} of the list: ${why} ${rest}`, { cause })
}

function checkDistinct(seen: readonly FirstLook[]): void {
  for (const [index, { runId }] of seen.entries()) {
    const first = seen.findIndex((other) => runId !== undefined && other.runId === runId)
    if (first === -1 || first === index) continue
    throw twiceError([first, index])
  }
}

function checkNew(seen: readonly FirstLook[]): void {
  const used = seen.findIndex(({ tag }) => tag !== 'new')
  if (used === -1) return
  const others = seen.some(({ tag }) => tag === 'new')
    ? ' So a server without keys of Holdfast may have lost them.'
    : ''
  throw refusal(
    `Expected new Redis servers, got one that Holdfast has used before: number ${used + 1} of the list.${others} The votes of servers that were used count \`maxTtl\` after a process first connects to them.`,
  )
}

/** In how many milliseconds the votes of a majority count, if these servers stay as they are. Zero or less: they count now. */
function forgetfulMs(seen: readonly FirstLook[], maxTtlMs: number): number {
  const ages = seen.map(({ ageMs }) => ageMs).sort((one, other) => other - one)
  return maxTtlMs - (ages[Math.floor(seen.length / 2)] ?? 0)
}

function young(leftMs: number): string {
  return `Expected new Redis servers, got servers that Holdfast has used before, for less than \`maxTtl\`. Their votes count in ${milliseconds(leftMs)}.`
}

function refusal(message: string): StoreError {
  return new StoreError('store-refused', message)
}

const LIMIT_MS = 5000
const PAUSES: Backoff = { firstMs: 100, longestMs: 1000, jitter: 0.5 }
