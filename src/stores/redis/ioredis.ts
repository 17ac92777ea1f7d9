import {
  type CommandConnection,
  KEEP_ALIVE_MS,
  type MessageListener,
  type RedisLink,
  reconnectDelayMs,
  type Subscription,
} from './connection.ts'

/** What the store uses of a `Redis` object of the package `ioredis`, version 5 or 6. */
export interface IoredisClient {
  readonly status: string
  readonly options: object
  duplicate(override?: object): IoredisConnection
}

/** What the store uses of its own duplicates of an {@link IoredisClient}. */
export interface IoredisConnection {
  readonly status: string
  call(command: string, args: string[]): Promise<unknown>
  on(event: string, listener: (...args: unknown[]) => void): unknown
  subscribe(channel: string): Promise<unknown>
  disconnect(): void
}

export function ioredisLink(client: IoredisClient): RedisLink {
  const { keyPrefix } = client.options as { readonly keyPrefix?: unknown }
  return {
    keyPrefix: typeof keyPrefix === 'string' ? keyPrefix : '',
    open: (onLost) => new IoredisCommands(client, onLost),
    subscribe: (channel, listener) => subscribe(client, channel, listener),
  }
}

/** The settings of our connections where they must not be the application's. */
const OWN_OPTIONS = {
  lazyConnect: true,
  keyPrefix: '',
  keepAlive: KEEP_ALIVE_MS,
  retryStrategy: reconnectDelayMs,
  reconnectOnError: null,
  // A request is never sent a second time by the client: only the engine knows whether it still wants it.
  autoResendUnfulfilledCommands: false,
  // What cannot be sent fails with the next attempt to connect, so nothing piles up while the server is away.
  enableOfflineQueue: true,
  maxRetriesPerRequest: 0,
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

function duplicateOf(client: IoredisClient): IoredisConnection {
  const redis = client.duplicate(OWN_OPTIONS)
  redis.on('connect', () => letProcessEnd(redis))
  redis.on('reconnecting', () => letProcessEnd(redis))
  // Its socket is made a little later.
  redis.on('connecting', () => setImmediate(letProcessEnd, redis))
  return redis
}

/** Neither a socket nor the pause before the next attempt may keep the process. The client has no words for it. */
function letProcessEnd(redis: object): void {
  const { stream, reconnectTimeout } = redis as {
    readonly [part in 'stream' | 'reconnectTimeout']?: Unrefable
  }
  stream?.unref?.()
  reconnectTimeout?.unref?.()
}

interface Unrefable {
  unref?(): void
}

class IoredisCommands implements CommandConnection {
  readonly #redis: IoredisConnection
  #lastError: unknown

  constructor(client: IoredisClient, onLost: () => void) {
    this.#redis = duplicateOf(client)
    this.#redis.on('close', onLost)
    this.#redis.on('error', (error: unknown) => {
      this.#lastError = error
    })
    this.#redis.on('ready', () => {
      this.#lastError = undefined
    })
  }

  send(command: string, args: string[]): Promise<unknown> {
    return this.#redis.call(command, args)
  }

  reasonOf(error: unknown): unknown {
    return reasonOf(error, this.#lastError)
  }

  close(): void {
    this.#redis.disconnect()
  }
}

function subscribe(
  client: IoredisClient,
  channel: string,
  { onMessage, onResubscribed }: MessageListener,
): Subscription {
  const redis = duplicateOf(client)
  let lastError: unknown
  redis.on('error', (error) => {
    lastError = error
  })
  redis.on('message', (_channel, message) => onMessage(String(message)))
  const flowing = redis.subscribe(channel).then(
    () => {
      redis.on('ready', () => {
        redis.subscribe(channel).then(onResubscribed, () => {})
      })
    },
    (error: unknown) => {
      redis.disconnect()
      throw reasonOf(error, lastError)
    },
  )
  return { flowing, close: () => redis.disconnect() }
}

/** "Reached the max retries per request": why it could not connect was said elsewhere. */
function reasonOf(error: unknown, lastError: unknown): unknown {
  const isGivingUp = error instanceof Error && error.name === 'MaxRetriesPerRequestError'
  return isGivingUp ? (lastError ?? error) : error
}
