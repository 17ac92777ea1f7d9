import { Channels } from './channels.ts'
import {
  type ChannelsConnection,
  type ChannelsListener,
  KEEP_ALIVE_MS,
  type OtherServer,
  type RawConnection,
  type RedisLink,
  reconnectDelayMs,
} from './client-link.ts'
import { unrefReconnectTimer } from './undocumented.ts'

/** The part of a `Redis` object of the package `ioredis`, version 5 or 6, that the store uses. */
export interface IoredisClient {
  readonly status: string
  readonly options: object
  duplicate(override?: object): IoredisConnection
}

/** The part of its own duplicates of an {@link IoredisClient} that the store uses. */
export interface IoredisConnection {
  readonly status: string
  call(command: string, args: string[]): Promise<unknown>
  on(event: string, listener: (...args: unknown[]) => void): unknown
  subscribe(channel: string): Promise<unknown>
  disconnect(): void
  /** Its socket, while there is one. */
  readonly stream?: { unref?(): void } | null
}

/** The further part that the store uses on servers of a cluster. */
interface ShardSubscriber extends IoredisConnection {
  ssubscribe(channel: string): Promise<unknown>
  sunsubscribe(channel: string): Promise<unknown>
}

export function ioredisLink(client: IoredisClient, target?: OtherServer): RedisLink {
  const { keyPrefix } = client.options as { readonly keyPrefix?: unknown }
  // A Sentinel has no databases.
  const database = target?.access === undefined ? databaseOf(client) : 0
  const duplicate = (): IoredisConnection => duplicateOf(client, target)
  return {
    keyPrefix: typeof keyPrefix === 'string' ? keyPrefix : '',
    open: (onLost) => new IoredisCommands(duplicate(), { database, onLost }),
    openChannels: (listener, options) => openChannels(duplicate(), listener, options),
  }
}

export function databaseOf({ options }: IoredisClient): number {
  return Number((options as { readonly db?: unknown }).db ?? 0)
}

/** The settings of our connections where they must not be the application's. */
const OWN_OPTIONS = {
  lazyConnect: true,
  keyPrefix: '',
  // The client would go on in database 0 where the server refuses another one. Messages belong to no database.
  db: 0,
  keepAlive: KEEP_ALIVE_MS,
  retryStrategy: reconnectDelayMs,
  // A timer that keeps the process, and that nothing stops where the connection was lost before it was closed.
  disconnectTimeout: 100,
  reconnectOnError: null,
  // A request is never sent a second time by the client: only the engine knows whether it still wants it.
  autoResendUnfulfilledCommands: false,
  // A command that cannot be sent fails with the next attempt to connect, so nothing piles up while the server is away.
  enableOfflineQueue: true,
  maxRetriesPerRequest: 0,
  // Only an open request shows that a connection is silent: a command that the client gave up would hide a dead one.
  commandTimeout: undefined,
  // Its timer outlives the connection: it keeps the process, and may end the next connection.
  socketTimeout: undefined,
  // If a connection is lost while ioredis 5 gives it its name, the client takes it for ready and never connects again.
  connectionName: null,
  // We bundle requests ourselves, and say what belongs together.
  enableAutoPipelining: false,
  // These would ask for INFO and CLIENT, which the user of the store needs no permission for.
  enableReadyCheck: false,
  disableClientInfo: true,
  autoResubscribe: false,
  stringNumbers: false,
  monitor: false,
  readOnly: false,
}

function duplicateOf(client: IoredisClient, target: OtherServer | undefined): IoredisConnection {
  const redis = client.duplicate(
    target === undefined ? OWN_OPTIONS : { ...OWN_OPTIONS, ...optionsFor(client, target) },
  )
  redis.on('connect', () => letProcessEnd(redis))
  redis.on('reconnecting', () => letProcessEnd(redis))
  // Its socket is made a little later.
  redis.on('connecting', () => setImmediate(letProcessEnd, redis))
  return redis
}

/** The options of a plain client, made from those of a client that may find its server by Sentinels. */
function optionsFor(client: IoredisClient, { host, port, access }: OtherServer): object {
  const at = { host, port, path: undefined, sentinels: null, name: null }
  if (access !== undefined) {
    const { username = null, password = null, tls } = access
    return { ...at, username, password, tls: tls === true ? {} : tls || undefined }
  }
  // A client with Sentinels uses TLS for the servers only if it is told so twice.
  const { sentinels, tls, enableTLSForSentinelMode } = client.options as {
    readonly [name in 'sentinels' | 'tls' | 'enableTLSForSentinelMode']?: unknown
  }
  return { ...at, tls: sentinels && !enableTLSForSentinelMode ? undefined : tls }
}

/** Neither a socket nor the pause before the next attempt may keep the process. */
function letProcessEnd(redis: IoredisConnection): void {
  redis.stream?.unref?.()
  unrefReconnectTimer(redis)
}

class IoredisCommands implements RawConnection {
  readonly #redis: IoredisConnection
  readonly #database: number
  /** Whether this very connection is known to be in the database. */
  #isSelected: boolean
  #selecting: Promise<unknown> | undefined
  /** How many commands wait for the SELECT. */
  #unsent = 0
  #lastError: unknown
  /** The rejections of commands that the client got while it was not connected. */
  readonly #unsettled = new Set<(error: Error) => void>()

  constructor(
    redis: IoredisConnection,
    { database, onLost }: { readonly database: number; readonly onLost: () => void },
  ) {
    this.#redis = redis
    this.#database = database
    this.#isSelected = database === 0
    this.#redis.on('close', () => {
      this.#isSelected = database === 0
      this.#selecting = undefined
      this.#unsent = 0
      onLost()
    })
    this.#redis.on('error', (error: unknown) => {
      this.#lastError = error
    })
    this.#redis.on('ready', () => {
      this.#lastError = undefined
    })
  }

  send(command: string, args: string[]): Promise<unknown> {
    if (this.#redis.status !== 'ready') return this.#untilClosed(this.#sendSelected(command, args))
    if (this.#isSelected) return this.#redis.call(command, args)
    return this.#sendSelected(command, args)
  }

  reasonOf(error: unknown): unknown {
    return reasonOf(error, this.#lastError)
  }

  close(): void {
    this.#redis.disconnect()
    for (const reject of this.#unsettled) reject(new Error('The connection was closed'))
  }

  /**
   * Between two attempts to connect the client keeps its commands, and a `disconnect` leaves them without an answer. So
   * this rejects them.
   */
  #untilClosed(reply: Promise<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#unsettled.add(reject)
      reply.then(resolve, reject).finally(() => this.#unsettled.delete(reject))
    })
  }

  /** A command that is sent before the server has confirmed the database might run in another one. */
  async #sendSelected(command: string, args: string[]): Promise<unknown> {
    if (this.#isSelected) return this.#redis.call(command, args)
    // In capitals: ioredis takes note of a `select` in small letters, and would send one of its own besides.
    this.#selecting ??= this.#redis.call('SELECT', [String(this.#database)])
    const selecting = this.#selecting
    this.#unsent += 1
    try {
      await selecting
    } catch (error) {
      if (this.#selecting === selecting) {
        this.#selecting = undefined
        this.#unsent = 0
      }
      throw error
    }
    if (this.#selecting !== selecting) throw new Error('The connection was lost')
    this.#unsent -= 1
    // The flag is set only now, because no command may overtake those that still wait.
    if (this.#unsent === 0) this.#isSelected = true
    return this.#redis.call(command, args)
  }
}

function openChannels(
  redis: IoredisConnection,
  listener: ChannelsListener,
  { sharded = false }: { readonly sharded?: boolean } = {},
): ChannelsConnection {
  let lastError: unknown
  const shards = redis as ShardSubscriber
  const channels = new Channels(
    {
      subscribe: (channel) =>
        (sharded ? shards.ssubscribe(channel) : redis.subscribe(channel)).catch((error: unknown) => {
          throw reasonOf(error, lastError)
        }),
      // Only channels of a slot are unsubscribed one by one.
      unsubscribe: (channel) => shards.sunsubscribe(channel),
      ping: () => redis.call('PING', []),
      close: () => redis.disconnect(),
    },
    listener,
  )
  // A channel that the server ends because its slot has moved is an answer without a question, and an error to the client.
  redis.on('error', (error) => {
    lastError = error
  })
  redis.on(sharded ? 'smessage' : 'message', (_channel, message) => channels.take(String(message)))
  // The slot has moved to another server. The client does not report that to the subscriber.
  redis.on('moved', () => channels.heard())
  redis.on('close', () => channels.lose(lastError))
  return channels
}

/** "Reached the max retries per request": why it could not connect was said elsewhere, or the server hung up without a word. */
function reasonOf(error: unknown, lastError: unknown): unknown {
  const isGivingUp = error instanceof Error && error.name === 'MaxRetriesPerRequestError'
  return isGivingUp ? (lastError ?? new Error('The connection was closed there without an answer')) : error
}
