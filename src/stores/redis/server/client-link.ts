import { type Backoff, backoffMs } from '../../../base/backoff.ts'

/** Makes connections to one server. Each client library has a file that implements it. */
export interface RedisLink {
  /** The prefix that the user's client puts before every key. The connections made here do not. */
  readonly keyPrefix: string
  /** Whether {@link open} gives the same connection each time. Default: false. */
  readonly isShared?: boolean
  /**
   * A connection of the store's own, so that the application cannot hold up a renewal. It connects with its first command.
   * `onLost`: the connection was lost. The next command may reach another server, or the same one after a restart.
   */
  open(onLost: () => void): RawConnection
  /** A connection for messages. `sharded`: for channels that belong to one slot of a cluster. */
  openChannels(listener: ChannelsListener, options?: { readonly sharded?: boolean }): ChannelsConnection
  /** Ends what the connections share. Each open connection has to be closed by itself. */
  close?(): void
}

/** Makes links to the servers of a Redis Cluster. */
export interface ClusterLink {
  readonly keyPrefix: string
  /** Servers to ask first. They tell of the others. */
  readonly seeds: readonly ServerAddress[]
  /** To the server with this address, as the servers announce it to each other. */
  linkTo(announced: ServerAddress): RedisLink
}

export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** A server other than the one that the client was made for. */
export interface OtherServer extends ServerAddress {
  /** Default: the user, password and TLS of the client. */
  readonly access?: ServerAccess
}

export interface ServerAccess {
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** Options of `tls.connect`, or true for its defaults. */
  readonly tls?: object | boolean | undefined
}

/**
 * Reconnects by itself. A command without a connection waits for one attempt to connect, and fails with it. Nothing here
 * keeps the process alive: the engine has a timer for each answer that it waits for.
 */
export interface RawConnection {
  send(command: string, args: string[]): Promise<unknown>
  /** Why a command failed, where the client's own error does not say it. */
  reasonOf(error: unknown): unknown
  /** Takes effect at once; open commands are rejected. Repeatable. */
  close(): void
}

export interface MessageListener {
  onMessage(message: string): void
  /** The connection was lost and the subscription is back: messages may have been missed in between. */
  onResubscribed(): void
}

export interface ChannelsListener {
  onMessage(message: string): void
  /** The connection is lost for good: a new one has to be opened. */
  onLost(): void
}

/** Connects once, with its first channel. A connection that is silent for too long counts as lost. */
export interface ChannelsConnection {
  /** Resolves once messages of the channel flow. */
  add(channel: string): Promise<void>
  remove(channel: string): void
  /** At once. Repeatable. */
  close(): void
}

export interface MessageSubscription {
  /** Resolves once messages flow, rejects when they cannot. */
  readonly flowing: Promise<void>
  /**
   * Whether messages flow now. `counted`: if a server counts no receiver of a message, this process is gone. `uncounted`: on a
   * cluster, where the message may have reached another server.
   */
  readonly flow: 'none' | 'counted' | 'uncounted'
  /** At once. Repeatable. */
  close(): void
}

/** Pauses between attempts to connect: long enough for a server that restarts, short enough for a lease of some seconds. */
export function reconnectDelayMs(attempt: number): number {
  return backoffMs(RECONNECTING, attempt)
}

const RECONNECTING: Backoff = { firstMs: 100, longestMs: 1000, jitter: 0.25 }

/**
 * A connection with a request open for this long is half open, or its server hangs. A new connection may get through. TCP
 * alone would take a quarter of an hour to notice.
 */
export const SILENCE_MS = 5000

/** With this setting TCP notices a vanished peer after so long without traffic, and not after two hours. */
export const KEEP_ALIVE_MS = 10_000
