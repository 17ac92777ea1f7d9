import type { ChannelsConnection, RedisLink } from '../server/client-link.ts'
import { Line } from '../server/connection.ts'
import { clusterScripts } from '../server/scripts.ts'

export interface ClusterNodeOptions {
  readonly address: string
  readonly replicas: number
  /** What comes next may reach another server, or the same one after a restart. */
  readonly onLost: () => void
  readonly onMute: () => void
}

/** One server of a cluster, and our connections to it. */
export class ClusterNode {
  readonly address: string
  readonly link: RedisLink
  readonly line: Line
  /** It may be gone. */
  suspect = false
  /** It is taking over a slot, and may have none yet. */
  isHeir = false
  /** Until when we listen to which channel, on the monotonic clock. */
  readonly #channels = new Map<string, number>()
  #connection: ChannelsConnection | undefined
  #sweep: NodeJS.Timeout | undefined

  constructor(link: RedisLink, { address, replicas, onLost, onMute }: ClusterNodeOptions) {
    this.address = address
    this.link = link
    const watched = {
      ...link,
      open: (forget: () => void) =>
        link.open(() => {
          forget()
          onLost()
        }),
    }
    this.line = new Line(watched, { replicas, scripts: clusterScripts, onMute })
  }

  /** Messages of a channel for so long at least. If none comes, they come another way. */
  listen(
    channel: string,
    { untilMs, onMessage }: { readonly untilMs: number; readonly onMessage: (message: string) => void },
  ): void {
    const known = this.#channels.has(channel)
    this.#channels.set(channel, performance.now() + untilMs)
    this.#sweep ??= setInterval(() => this.#leaveChannels(), SWEEP_MS).unref()
    if (known) return
    this.#connection ??= this.link.openChannels(
      { onMessage, onLost: () => this.#silence() },
      { sharded: true },
    )
    // A slot that is not here any more, or a server that knows no such channels: asked for again with the next waiter.
    this.#connection.add(channel).catch(() => this.#channels.delete(channel))
  }

  /** It is no master any more. What it has not answered is rejected. */
  leave(): void {
    this.line.leave()
    this.#silence()
  }

  close(): void {
    this.line.close()
    this.#silence()
  }

  #leaveChannels(): void {
    const now = performance.now()
    for (const [channel, until] of this.#channels) {
      if (until > now) continue
      this.#channels.delete(channel)
      this.#connection?.remove(channel)
    }
    // Nobody waits here, so the connection is one too many.
    if (this.#channels.size === 0) this.#silence()
  }

  #silence(): void {
    clearInterval(this.#sweep)
    this.#sweep = undefined
    this.#channels.clear()
    const connection = this.#connection
    this.#connection = undefined
    connection?.close()
  }
}

const SWEEP_MS = 1000
