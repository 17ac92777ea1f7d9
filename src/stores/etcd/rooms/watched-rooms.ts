import { type Backoff, backoffMs } from '../../../base/backoff.ts'
import type { Cluster } from '../grpc/cluster.ts'
import type { MemberStream } from '../grpc/connection.ts'
import { encoded, TXN, WATCH, type WatchReply } from '../grpc/messages.ts'
import { MessageReader } from '../grpc/wire.ts'
import type { KeyNames } from './key-names.ts'
import { EtcdRoom } from './room.ts'
import { entryOf, type RoomEntry } from './room-entry.ts'

export interface WatchedRoomsOptions {
  readonly cluster: Cluster
  readonly names: KeyNames
  /** A room is watched from now on. */
  onWatched(room: EtcdRoom): void
  /** A room has changed: `entries` are the new values, `removed` the ids of deleted keys. */
  onChange(
    room: EtcdRoom,
    change: { readonly entries: readonly RoomEntry[]; readonly removed: readonly string[] },
  ): void
}

/**
 * The rooms that this process watches, because it has tickets there. Each room is read once, and a watch keeps it up to date from
 * the next revision on. All watches share one stream.
 *
 * If the stream ends, a new stream continues at the revision of each room, so nothing is missed. If etcd has compacted that part
 * of its history, the room is read again.
 */
export class WatchedRooms {
  readonly #options: WatchedRoomsOptions
  readonly #rooms = new Map<string, Watched>()
  readonly #byWatch = new Map<number, Watched>()
  #stream: MemberStream | undefined
  #isConnecting = false
  /** When the stream began, by the monotonic clock. Infinity if there is none. */
  #connectedAt = Number.POSITIVE_INFINITY
  #failures = 0
  #lastWatch = 0
  #isClosed = false

  constructor(options: WatchedRoomsOptions) {
    this.#options = options
  }

  get(key: string): EtcdRoom | undefined {
    return this.#rooms.get(key)?.room
  }

  get size(): number {
    return this.#rooms.size
  }

  values(): EtcdRoom[] {
    return [...this.#rooms.values()].map(({ room }) => room)
  }

  /** Watches a room from now on. `entries` are all its keys at the revision. */
  open(key: string, entries: readonly RoomEntry[], revision: number): EtcdRoom {
    const present = this.#rooms.get(key)
    if (present !== undefined) {
      this.#refill(present, entries, revision)
      return present.room
    }
    const watched: Watched = { room: new EtcdRoom(key), watch: 0, reached: [], refreshing: undefined }
    watched.room.fill(entries, revision)
    this.#rooms.set(key, watched)
    this.#watch(watched)
    this.#options.onWatched(watched.room)
    return watched.room
  }

  /** Reads a room, and watches it from now on. */
  async read(key: string): Promise<EtcdRoom> {
    const { names, cluster } = this.#options
    const request = { when: [], apply: [{ tag: 'range', ...names.room(key) }], otherwise: [] } as const
    const { reply } = await cluster.ask(TXN, request)
    const entries = reply.ranges.flatMap(({ pairs }) => pairs.map((pair) => entryOf(pair, names)))
    return this.open(key, entries, reply.revision)
  }

  /**
   * Resolves when the room is not older than this call. All calls of one tick share one small request. It asks whether the room
   * still has the known number of keys and none of them is newer.
   */
  refresh(room: EtcdRoom): Promise<void> {
    const watched = this.#rooms.get(room.key)
    if (watched?.room !== room) return this.read(room.key).then(() => {})
    watched.refreshing ??= this.#refresh(watched)
    return watched.refreshing
  }

  /** Waits until the watch has told everything up to this revision. Resolves with false if it has not after a while. */
  reached(room: EtcdRoom, revision: number): Promise<boolean> {
    const watched = this.#rooms.get(room.key)
    if (room.revision >= revision) return Promise.resolve(true)
    if (watched?.room !== room) return Promise.resolve(false)
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(room.revision >= revision), LONGEST_LAG_MS)
      timer.unref()
      watched.reached.push(() => {
        if (room.revision < revision && this.#rooms.get(room.key) === watched) return false
        clearTimeout(timer)
        resolve(room.revision >= revision)
        return true
      })
    })
  }

  async #refresh(watched: Watched): Promise<void> {
    await undefined
    watched.refreshing = undefined
    const { room } = watched
    const range = this.#options.names.room(room.key)
    const { reply } = await this.#options.cluster.ask(TXN, {
      when: [{ that: 'modified', is: 'less', ...range, revision: room.revision + 1 }],
      apply: [{ tag: 'range', ...range, counts: true }],
      otherwise: [{ tag: 'range', ...range, counts: true }],
    })
    if (reply.succeeded && reply.ranges[0]?.count === room.size) return
    if (room.revision < reply.revision) await this.read(room.key)
  }

  leave(key: string): void {
    const watched = this.#rooms.get(key)
    if (watched === undefined) return
    this.#rooms.delete(key)
    this.#byWatch.delete(watched.watch)
    this.#tellReached(watched)
    this.#stream?.send(encoded(WATCH, { tag: 'cancel', id: watched.watch }))
    if (this.#rooms.size === 0) this.#hangUp()
  }

  /** etcd has lost its data, so the revisions of these rooms mean nothing any more. */
  forgetAll(): void {
    for (const key of [...this.#rooms.keys()]) this.leave(key)
  }

  close(): void {
    this.#isClosed = true
    this.#hangUp()
  }

  #watch(watched: Watched): void {
    this.#byWatch.delete(watched.watch)
    this.#lastWatch += 1
    watched.watch = this.#lastWatch
    this.#byWatch.set(watched.watch, watched)
    const range = this.#options.names.room(watched.room.key)
    const request = { tag: 'create', id: watched.watch, range, from: watched.room.revision + 1 } as const
    if (this.#stream === undefined) void this.#connect()
    else this.#stream.send(encoded(WATCH, request))
  }

  async #connect(): Promise<void> {
    if (this.#isConnecting || this.#stream !== undefined || this.#isClosed) return
    this.#isConnecting = true
    try {
      const stream = await this.#options.cluster.openStream(WATCH, {
        onMessage: (bytes) => this.#hear(WATCH.decode(new MessageReader(bytes))),
        onEnd: () => {
          this.#stream = undefined
          this.#connectLater()
        },
      })
      if (this.#isClosed || this.#rooms.size === 0) return stream.close()
      this.#stream = stream
      this.#connectedAt = performance.now()
      for (const watched of this.#rooms.values()) this.#watch(watched)
    } catch {
      // Other requests report what is wrong.
      this.#connectLater()
    } finally {
      this.#isConnecting = false
    }
  }

  #connectLater(): void {
    if (this.#isClosed || this.#rooms.size === 0) return
    // A stream that lasted was no failure. A first message says nothing: etcd may take one watch and refuse the next.
    const hasLasted = performance.now() - this.#connectedAt > LASTING_MS
    this.#connectedAt = Number.POSITIVE_INFINITY
    this.#failures = hasLasted ? 1 : this.#failures + 1
    setTimeout(() => void this.#connect(), backoffMs(CONNECTING, this.#failures)).unref()
  }

  #hangUp(): void {
    this.#stream?.close()
    this.#stream = undefined
  }

  #hear(reply: WatchReply): void {
    // Newer versions of etcd do not say which watch they refuse.
    if (reply.canceled && reply.id < 0) return this.#refused()
    const watched = this.#byWatch.get(reply.id)
    if (watched === undefined) return
    if (reply.canceled) return this.#canceled(watched, reply)
    const { room } = watched
    const entries: RoomEntry[] = []
    const removed: string[] = []
    try {
      for (const { deleted, pair } of reply.events) {
        // The room was read after this event.
        if (pair.modRevision <= room.revision) continue
        if (deleted) {
          const { id } = this.#options.names.parse(pair.key)
          room.delete(id)
          removed.push(id)
        } else {
          const entry = entryOf(pair, this.#options.names)
          room.put(entry)
          entries.push(entry)
        }
      }
    } catch {
      // Another program writes in this range. The next acquire of the key reads it again and reports that.
      return this.leave(room.key)
    }
    const last = reply.events.at(-1)
    if (last === undefined) return
    room.revision = Math.max(room.revision, last.pair.modRevision)
    this.#tellReached(watched)
    this.#options.onChange(room, { entries, removed })
  }

  #canceled(watched: Watched, reply: WatchReply): void {
    this.#byWatch.delete(reply.id)
    if (reply.compactRevision === 0) return this.#refused()
    const { key } = watched.room
    this.read(key).then(
      () => this.#rooms.get(key) === watched && this.#watch(watched),
      () => this.leave(key),
    )
  }

  /**
   * The token may have been too old, so a new stream asks for a new one. If the user may not read this range, the next request of
   * a waiter reports that.
   */
  #refused(): void {
    this.#options.cluster.forgetToken()
    this.#hangUp()
    this.#connectLater()
  }

  #refill(watched: Watched, entries: readonly RoomEntry[], revision: number): void {
    const { room } = watched
    if (revision <= room.revision) return
    const before = [...room.tickets.keys()]
    room.fill(entries, revision)
    this.#tellReached(watched)
    const removed = before.filter((id) => !room.tickets.has(id))
    this.#options.onChange(room, { entries, removed })
  }

  #tellReached(watched: Watched): void {
    if (watched.reached.length > 0) watched.reached = watched.reached.filter((tell) => !tell())
  }
}

interface Watched {
  readonly room: EtcdRoom
  watch: number
  /** Each is called when the revision has changed, and returns whether it is done. */
  reached: (() => boolean)[]
  refreshing: Promise<void> | undefined
}

/** Usually an event follows the answer to its request much sooner. After this long the room is read again. */
const LONGEST_LAG_MS = 500
const CONNECTING: Backoff = { firstMs: 30, longestMs: 1000, jitter: 0.5 }
const LASTING_MS = 5000
