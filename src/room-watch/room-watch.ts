import { messageOf } from '../base/thrown.ts'
import { isHoldfastError, type Locks, type RoomView } from '../index.ts'
import { type HistoryLimits, type KeyHistory, RoomHistory, type Totals } from './room-history.ts'
import { boundedRoom } from './ticket-facts.ts'

export interface WatchOptions {
  /** Only keys that begin with it. Default: all. */
  readonly prefix?: string
  /** How long from one look to the next; longer where a look takes more than half of it. Default: 1000. */
  readonly everyMs?: number
  /** How many rooms a look takes in at most. Default: 50,000. */
  readonly maxRooms?: number
  readonly history?: Partial<HistoryLimits>
  /** Whether the process has to stay for it. Default: no. */
  readonly keepAlive?: boolean
  /** After every look, and when the store is away or does not answer. */
  readonly onSnapshot?: (snapshot: Snapshot) => void
}

/** All rooms as the last whole look has found them. */
export interface Snapshot {
  /** When that look was over, by this process's clock, in milliseconds since 1970; 0 before the first. */
  readonly at: number
  /** Sorted by key. Their durations are those of `at`. */
  readonly rooms: readonly RoomView[]
  /** There are more rooms than a look takes in. */
  readonly isCut: boolean
  readonly store: StoreState
}

export type StoreState =
  | { readonly tag: 'present'; readonly lookMs: number }
  /** Nothing was heard of it since then. `message` is for people. */
  | { readonly tag: 'away'; readonly sinceAt: number; readonly message: string }

export interface RoomWatch {
  /** The last one. */
  readonly snapshot: Snapshot
  /** The sums of every look, oldest first. */
  readonly totals: readonly Totals[]
  historyOf(key: string): KeyHistory | undefined
  /** The keys that were seen to change, also those that are free by now, as far as they are remembered. */
  readonly changed: Iterable<string>
  /** So that the history knows why these are gone. */
  noteEviction(key: string, ids: readonly string[], reason: string): void
  /** Looks at once, or once more when the present look is over. */
  lookNow(): void
  /** No snapshot comes afterwards. Repeatable. */
  stop(): void
}

/**
 * Looks at all rooms of a store over and over, one look at a time, and remembers what has changed from one to the next. It
 * never spends more than half of the time looking, goes on while the store is away, and needs no more memory than its
 * limits say.
 */
export function watchRooms(locks: Pick<Locks, 'inspect'>, options: WatchOptions = {}): RoomWatch {
  const watch = new Watch(locks, options)
  void watch.run()
  return watch
}

class Watch implements RoomWatch {
  snapshot: Snapshot = { at: 0, rooms: [], isCut: false, store: { tag: 'present', lookMs: 0 } }
  readonly #locks: Pick<Locks, 'inspect'>
  readonly #options: WatchOptions
  readonly #history: RoomHistory
  #isStopped = false
  #isAskedAgain = false
  #endPause: () => void = () => {}

  constructor(locks: Pick<Locks, 'inspect'>, options: WatchOptions) {
    this.#locks = locks
    this.#options = options
    this.#history = new RoomHistory({ ...LIMITS, ...options.history })
  }

  get totals(): readonly Totals[] {
    return this.#history.totals
  }

  historyOf(key: string): KeyHistory | undefined {
    return this.#history.of(key)
  }

  get changed(): Iterable<string> {
    return this.#history.changed
  }

  noteEviction(key: string, ids: readonly string[], reason: string): void {
    this.#history.noteEviction(key, ids, { reason, at: Date.now() })
  }

  lookNow(): void {
    this.#isAskedAgain = true
    this.#endPause()
  }

  stop(): void {
    this.#isStopped = true
    this.#endPause()
  }

  async run(): Promise<void> {
    const { everyMs = 1000 } = this.#options
    while (!this.#isStopped) {
      const begunMs = performance.now()
      this.#isAskedAgain = false
      const isDone = await this.#look(begunMs)
      const tookMs = performance.now() - begunMs
      // A request that failed was a long wait for nothing, and no work of the store.
      const pauseMs = Math.max(everyMs - tookMs, isDone ? tookMs : Math.min(tookMs, AWAY_PAUSE_MS))
      if (!this.#isStopped && !this.#isAskedAgain) await this.#pause(pauseMs)
    }
  }

  /** Whether the store has shown it all. */
  async #look(begunMs: number): Promise<boolean> {
    const { prefix = '', maxRooms = 50_000 } = this.#options
    const rooms = new Map<string, RoomView>()
    let heardAt = begunMs
    let isCut = false
    // A request is given up after 10 s, which is long for somebody who looks at a screen.
    const silence = setInterval(() => {
      const silentMs = performance.now() - heardAt
      if (silentMs >= SILENT_MS)
        this.#away(`The store has not answered for ${Math.round(silentMs / 1000)} s.`)
    }, SILENT_MS / 3)
    silence.unref()
    try {
      for await (const room of this.#locks.inspect({ prefix, pageSize: PAGE_SIZE })) {
        heardAt = performance.now()
        isCut = rooms.size >= maxRooms
        if (isCut || this.#isStopped) break
        // Stores that go through their keys may come across one twice.
        const bounded = boundedRoom(room)
        rooms.set(bounded.key, bounded)
      }
    } catch (error) {
      this.#away(messageOf(error))
      // They do not open again. Who looks has to hear that before there is nothing more to hear.
      if (isHoldfastError(error, 'closed')) this.stop()
      return false
    } finally {
      clearInterval(silence)
    }
    const at = Date.now()
    const sorted = Array.from(rooms.values()).sort((one, other) => (one.key < other.key ? -1 : 1))
    this.#history.look(rooms, { at, begunMs })
    this.#tell({
      at,
      rooms: sorted,
      isCut,
      store: { tag: 'present', lookMs: performance.now() - begunMs },
    })
    return true
  }

  /** What was seen last stays to be seen. */
  #away(message: string): void {
    const { store } = this.snapshot
    const sinceAt = store.tag === 'away' ? store.sinceAt : Date.now()
    this.#tell({ ...this.snapshot, store: { tag: 'away', sinceAt, message } })
  }

  #tell(snapshot: Snapshot): void {
    if (this.#isStopped) return
    this.snapshot = snapshot
    this.#options.onSnapshot?.(snapshot)
  }

  async #pause(durationMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, durationMs)
      if (this.#options.keepAlive !== true) timer.unref()
      this.#endPause = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    this.#endPause = () => {}
  }
}

/** Together some 30 MB at most. */
const LIMITS: HistoryLimits = { keys: 20_000, entries: 60, total: 100_000, looks: 300 }
const PAGE_SIZE = 500
const SILENT_MS = 3000
const AWAY_PAUSE_MS = 1000
