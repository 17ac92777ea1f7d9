import type { ChannelsConnection, RedisLink } from '../server/client-link.ts'
import { ServerConnection } from '../server/connection.ts'
import { clusterScripts } from './scripts.ts'

export interface ClusterNodeOptions {
  readonly address: string
  readonly replicas: number
  readonly readOnly: boolean
  /** The connection was lost. The next command may reach another server, or the same one after a restart. */
  readonly onLost: () => void
  readonly onMute: () => void
}

export interface ChannelOptions {
  readonly untilMs: number
  readonly onMessage: (message: string) => void
  /** The connection was lost, and perhaps messages with it. */
  readonly onLost: () => void
}

/** A server of a cluster, and our connections to it. */
export class ClusterNode {
  readonly address: string
  readonly link: RedisLink
  readonly connection: ServerConnection
  /** It may be gone: it did not answer, or its connection was lost. */
  suspect = false
  /** It is importing a slot, and may have none yet. */
  isImporting = false
  /** Until when this process listens to each channel, on the monotonic clock. */
  readonly #channels = new Map<string, number>()
  #channelsConnection: ChannelsConnection | undefined
  /** Whether the server has subscribed to a channel on this connection, so that messages may be lost with it. */
  #listens = false
  #listenAgainAt = 0
  #sweep: NodeJS.Timeout | undefined

  constructor(link: RedisLink, { address, replicas, readOnly, onLost, onMute }: ClusterNodeOptions) {
    this.address = address
    this.link = link
    this.connection = new ServerConnection(link, {
      replicas,
      scripts: clusterScripts,
      readOnly,
      onMute,
      onLost,
    })
  }

  /** Subscribes to a channel of one slot, for so long at least. Where that fails, the message comes by the inbox for all servers. */
  listen(channel: string, { untilMs, onMessage, onLost }: ChannelOptions): void {
    const known = this.#channels.has(channel)
    if (this.#channelsConnection === undefined && performance.now() < this.#listenAgainAt) return
    this.#channels.set(channel, performance.now() + untilMs)
    this.#sweep ??= setInterval(() => this.#leaveChannels(), SWEEP_MS).unref()
    if (known) return
    this.#channelsConnection ??= this.link.openChannels(
      {
        onMessage,
        onLost: () => {
          const listened = this.#listens
          this.#silence()
          if (listened) onLost()
          else this.#listenAgainAt = performance.now() + LISTEN_PAUSE_MS
        },
      },
      { sharded: true },
    )
    // The slot has moved away, or the server is older than 7. The next waiter tries again.
    const connection = this.#channelsConnection
    connection.add(channel).then(
      () => {
        if (this.#channelsConnection === connection) this.#listens = true
      },
      () => this.#channels.delete(channel),
    )
  }

  /** It is no master any more. Open requests are rejected. */
  leave(): void {
    this.connection.leave()
    this.#silence()
  }

  close(): void {
    this.connection.close()
    this.#silence()
  }

  #leaveChannels(): void {
    const now = performance.now()
    for (const [channel, until] of this.#channels) {
      if (until > now) continue
      this.#channels.delete(channel)
      this.#channelsConnection?.remove(channel)
    }
    // No ticket waits for a key of this server.
    if (this.#channels.size === 0) this.#silence()
  }

  #silence(): void {
    clearInterval(this.#sweep)
    this.#sweep = undefined
    this.#channels.clear()
    this.#listens = false
    const connection = this.#channelsConnection
    this.#channelsConnection = undefined
    connection?.close()
  }
}

const SWEEP_MS = 1000
/** After a connection on which the server subscribed to nothing. Meanwhile the messages come by the inbox for all servers. */
const LISTEN_PAUSE_MS = 1000
