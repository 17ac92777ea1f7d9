import { type Backoff, backoffMs } from '../../../base/backoff.ts'
/** What the store asks of a Redis client; one file per client library fulfils it. */
export interface RedisLink {
  /** What the user's client puts before every key. The connections below do not. */
  readonly keyPrefix: string
  /**
   * A connection of our own, so that nothing the application does can hold up a renewal. Connects when it is asked.
   * `onLost`: what comes next may reach another server, or the same one after a restart.
   */
  open(onLost: () => void): RawConnection
  /** Another one, for messages. `sharded`: for channels that belong to one slot of a cluster. */
  openChannels(listener: ChannelsListener, options?: { readonly sharded?: boolean }): ChannelsConnection
  /** Ends what its connections share. Those that are open end by themselves. */
  close?(): void
}

/** What the store asks of a client of a Redis Cluster: a client of each of its servers, and where to find the first. */
export interface ClusterLink {
  readonly keyPrefix: string
  readonly seeds: readonly ServerAddress[]
  /** To the server with this address, as the servers announce it to each other. */
  linkTo(announced: ServerAddress): RedisLink
}

export interface ServerAddress {
  readonly host: string
  readonly port: number
}

/** A server other than the one that the client was made for. */
export interface Target extends ServerAddress {
  /** How to get in there. Without it: as the client gets in where it was made for. */
  readonly access?: ServerAccess
}

export interface ServerAccess {
  readonly username?: string | undefined
  readonly password?: string | undefined
  /** Options of `tls.connect`, or true for its defaults. */
  readonly tls?: object | boolean | undefined
}

/**
 * Reconnects by itself. A command that finds no server waits for one attempt to connect, and fails with it. Nothing here
 * keeps the process alive: whoever waits for an answer has a timer that does.
 */
export interface RawConnection {
  send(command: string, args: string[]): Promise<unknown>
  /** Why a command failed, where the client's own error does not say it. */
  reasonOf(error: unknown): unknown
  /** At once; what is not answered yet is rejected. Repeatable. */
  close(): void
}

export interface MessageListener {
  onMessage(message: string): void
  /** The connection was lost and the subscription is back: messages may have been missed in between. */
  onResubscribed(): void
}

export interface ChannelsListener {
  onMessage(message: string): void
  /** For good: a new one has to be opened. */
  onLost(): void
}

/** Connects with its first channel, once. A connection that is silent for too long counts as lost. */
export interface ChannelsConnection {
  /** Resolves once messages of the channel flow. */
  add(channel: string): Promise<void>
  remove(channel: string): void
  /** At once. Repeatable. */
  close(): void
}

export interface Subscription {
  /** Resolves once messages flow, rejects when they cannot. */
  readonly flowing: Promise<void>
  /** Whether messages flow now, so that a server which counts no receiver of a message knows that this process is gone. */
  readonly provesLife: boolean
  /** At once. Repeatable. */
  close(): void
}

/** Pauses between attempts to connect: long enough for a server that restarts, short enough for a lease of some seconds. */
export function reconnectDelayMs(attempt: number): number {
  return backoffMs(RECONNECTING, attempt)
}

const RECONNECTING: Backoff = { firstMs: 100, longestMs: 1000, jitter: 0.25 }

/**
 * A connection that has owed an answer for this long is half open, or its server hangs. Another connection may get through;
 * TCP alone would take a quarter of an hour to notice.
 */
export const SILENCE_MS = 5000

/** A peer that vanished without a word is noticed by TCP after this long without traffic, and not after two hours. */
export const KEEP_ALIVE_MS = 10_000
