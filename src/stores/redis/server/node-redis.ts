import { Channels } from './channels.ts'
import {
  type ChannelsConnection,
  type ChannelsListener,
  KEEP_ALIVE_MS,
  type OtherServer,
  type RawConnection,
  type RedisLink,
} from './client-link.ts'

/** The part of a client of the package `redis`, version 4, 5 or 6, that the store uses. */
export interface NodeRedisClient {
  readonly isOpen: boolean
  readonly options?: object | undefined
  duplicate(overrides?: object): NodeRedisConnection
}

/** The part of its own duplicates of a {@link NodeRedisClient} that the store uses. */
export interface NodeRedisConnection {
  readonly isOpen: boolean
  readonly isReady: boolean
  connect(): Promise<unknown>
  sendCommand(args: string[]): Promise<unknown>
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  sSubscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  sUnsubscribe(channel: string): Promise<unknown>
  on(event: string, listener: (...args: unknown[]) => void): unknown
  /** Version 4 has `disconnect` alone. */
  destroy?(): void
  disconnect(): Promise<unknown>
  unref(): void
}

export function nodeRedisLink(client: NodeRedisClient, target?: OtherServer): RedisLink {
  const { keyPrefix } = (client.options ?? {}) as { readonly keyPrefix?: unknown }
  const duplicate = (): NodeRedisConnection => duplicateOf(client, target)
  return {
    keyPrefix: typeof keyPrefix === 'string' ? keyPrefix : '',
    open: (onLost) => new NodeRedisCommands(duplicate(), onLost),
    openChannels: (listener, options) => openChannels(duplicate(), listener, options),
  }
}

/** The settings of our connections where they must not be the application's. */
function duplicateOf(client: NodeRedisClient, target: OtherServer | undefined): NodeRedisConnection {
  const { socket } = (client.options ?? {}) as { readonly socket?: object }
  const redis = client.duplicate({
    ...accessFor(target),
    socket: {
      ...(target?.access === undefined && socket),
      ...socketFor(target),
      // A number of milliseconds in version 4.
      keepAlive: 'destroy' in client ? true : KEEP_ALIVE_MS,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      // Its own pauses between attempts would keep the process alive.
      reconnectStrategy: false,
      socketTimeout: undefined,
    },
    keyPrefix: undefined,
    // A command that cannot be sent fails at once. The connection below waits for one attempt to connect first.
    disableOfflineQueue: true,
    commandsQueueMaxLength: undefined,
    // No abort signal for each request: the engine does not wait longer than it wants to.
    commandOptions: { timeout: undefined },
    // These would ask for CLIENT, which the user of the store needs no permission for, or for traffic of their own.
    disableClientInfo: true,
    clientSideCache: undefined,
    emitInvalidate: false,
    maintNotifications: 'disabled',
    pingInterval: undefined,
    readonly: false,
    // Of version 4: commands with callbacks.
    legacyMode: false,
  })
  redis.unref()
  return redis
}

function accessFor(target: OtherServer | undefined): object {
  if (target === undefined) return {}
  // The client has merged its URL into its other options, and would do so again.
  if (target.access === undefined) return { url: undefined }
  const { username, password } = target.access
  return { url: undefined, credentialsProvider: undefined, username, password, database: 0 }
}

function socketFor(target: OtherServer | undefined): object {
  if (target === undefined) return {}
  const { host, port, access } = target
  const at = { host, port }
  if (access === undefined) return at
  const { tls } = access
  return typeof tls === 'object' ? { ...at, ...tls, tls: true } : { ...at, tls: tls === true }
}

class NodeRedisCommands implements RawConnection {
  readonly #redis: NodeRedisConnection
  readonly #socket: NodeRedisSocket
  #waiting: ((error?: unknown) => void)[] = []

  constructor(redis: NodeRedisConnection, onLost: () => void) {
    this.#redis = redis
    this.#socket = new NodeRedisSocket(redis)
    this.#redis.on('ready', () => this.#settle())
    this.#redis.on('error', (error: unknown) => {
      // The socket is sound, so the decoder has failed: each request would get the reply to another one from now on. Not while the client
      // connects: it would be `ready` afterwards, and closed.
      if (this.#redis.isReady) destroy(this.#redis)
      onLost()
      this.#settle(error)
    })
  }

  send(command: string, args: readonly string[]): Promise<unknown> {
    const whole = [command, ...args]
    if (this.#redis.isReady) return this.#redis.sendCommand(whole)
    return this.#ready().then(() => this.#redis.sendCommand(whole))
  }

  reasonOf(error: unknown): unknown {
    return error
  }

  close(): void {
    this.#settle(new Error('The connection was closed'))
    this.#socket.close()
  }

  #ready(): Promise<void> {
    if (!this.#redis.isOpen) this.#socket.connect().catch(() => {})
    return new Promise((resolve, reject) => {
      this.#waiting.push((error) => (error === undefined ? resolve() : reject(error)))
    })
  }

  #settle(error?: unknown): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const settle of waiting) settle(error)
  }
}

function openChannels(
  redis: NodeRedisConnection,
  listener: ChannelsListener,
  { sharded = false }: { readonly sharded?: boolean } = {},
): ChannelsConnection {
  const socket = new NodeRedisSocket(redis)
  let connected: Promise<unknown> | undefined
  const onMessage = (message: string): void => channels.take(message)
  const channels: Channels = new Channels(
    {
      async subscribe(channel) {
        connected ??= socket.connect()
        await connected
        await (sharded ? redis.sSubscribe(channel, onMessage) : redis.subscribe(channel, onMessage))
      },
      // Only those of a slot are left one by one.
      unsubscribe: (channel) => redis.sUnsubscribe(channel),
      ping: () => redis.sendCommand(['PING']),
      close: () => socket.close(),
    },
    listener,
  )
  redis.on('error', (error) => channels.lose(error))
  redis.on('end', () => channels.lose(undefined))
  return channels
}

/**
 * The socket of a client. While it is connecting, the client cannot destroy it: the socket would be opened all the same, log in, and
 * stay. So it is destroyed as soon as it is connected.
 */
class NodeRedisSocket {
  readonly #redis: NodeRedisConnection
  #isConnecting = false
  #isClosed = false

  constructor(redis: NodeRedisConnection) {
    this.#redis = redis
    redis.on('connect', () => {
      this.#isConnecting = false
      // Version 4 sends its first commands right after this event, and loses the rejections of those that it cannot send.
      if (this.#isClosed) setImmediate(destroy, redis)
    })
  }

  connect(): Promise<unknown> {
    this.#isConnecting = true
    return this.#redis.connect()
  }

  /** Repeatable. */
  close(): void {
    this.#isClosed = true
    if (!this.#isConnecting) destroy(this.#redis)
  }
}

function destroy(redis: NodeRedisConnection): void {
  if (!redis.isOpen) return
  if (redis.destroy === undefined) redis.disconnect().catch(() => {})
  else redis.destroy()
}
