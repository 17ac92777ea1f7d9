import { messageOf } from '../base/thrown.ts'
import { type InspectedRoom, isHoldfastError, type Locks } from '../index.ts'
import type { HistoryFile } from './history-file.ts'
import { HISTORY_LIMITS, type HistoryLimits } from './history-limits.ts'
import type { KeyHistory, KeyHold } from './hold-record.ts'
import type { Processes } from './processes.ts'
import type { RenewalFacts } from './renewal-facts.ts'
import { RoomHistory, type Totals } from './room-history.ts'
import { boundedRoom } from './ticket-facts.ts'
import type { WatchedTime } from './watched-times.ts'

export interface WatchOptions {
  /** Only keys that begin with it. Default: all keys. */
  readonly prefix?: string
  /**
   * From the start of one look to the next, in milliseconds. Longer if a look takes more than half of it, or more than a twentieth
   * while nothing changes. Default: 1000.
   */
  readonly everyMs?: number
  /** How many rooms a look reads at most. Default: 50,000. */
  readonly maxRooms?: number
  readonly history?: Partial<HistoryLimits>
  /** Keeps the history beyond the life of this process. */
  readonly file?: HistoryFile | undefined
  /** Whether the watch keeps the process alive. Default: false. */
  readonly keepAlive?: boolean
  /** After so many milliseconds without an answer the store is taken to be away. `Infinity`: a request decides. Default: 3000. */
  readonly silentMs?: number | undefined
  /** Called after every look, and when the store is away or does not answer. */
  readonly onSnapshot?: (snapshot: Snapshot) => void
}

/** All rooms as the last complete look found them. */
export interface Snapshot {
  /** When that look ended, by this process's clock in milliseconds since 1970; 0 before the first. */
  readonly at: number
  /** Sorted by key. Durations are as of `at`. */
  readonly rooms: readonly InspectedRoom[]
  /** Whether there are more rooms than a look reads. */
  readonly isCut: boolean
  /** What the looks cannot know, a sentence each, for people. */
  readonly caveats: readonly string[]
  readonly store: StoreState
}

export type StoreState =
  | { readonly tag: 'present'; readonly lookMs: number }
  /** The store has not answered since `sinceAt`. `message` is for people. */
  | { readonly tag: 'away'; readonly sinceAt: number; readonly message: string }

export interface RoomWatch {
  /** The last snapshot. */
  readonly snapshot: Snapshot
  /** The sums of every look, oldest first. */
  readonly totals: readonly Totals[]
  historyOf(key: string): KeyHistory | undefined
  /** The holds that were seen to expire or were evicted here, oldest first. */
  readonly losses: readonly KeyHold[]
  /** When somebody looked, oldest first. */
  readonly watched: readonly WatchedTime[]
  /** The processes that hold or wait, and idle ones. */
  readonly processes: Pick<Processes, 'view' | 'heardAt'>
  /** What is known about the renewals of a present holder. `undefined` for a ticket that is not there. */
  renewalsOf(id: string): RenewalFacts | undefined
  /** The remembered keys that were seen to change, also those that are free by now. */
  readonly changed: Iterable<string>
  /** Tells the history why these tickets are gone. */
  noteEviction(key: string, ids: readonly string[], reason: string): void
  /** Starts a look at once, or another one after the present look. */
  lookNow(): void
  /** Starts a look at once, unless one is under way. */
  lookUnlessLooking(): void
  /** Ends the watch: no snapshot comes afterwards. Repeatable. */
  stop(): void
}

/**
 * Reads all rooms of a store periodically, one look at a time, and remembers what changed from one look to the next. Looks
 * take at most half of the time. While nothing changes they take a twentieth, but the next one begins within 10 s. The watch goes on while the store is away, and its memory is bounded by its limits.
 */
export function watchRooms(locks: WatchedLocks, options: WatchOptions = {}): RoomWatch {
  const watch = new Watch(locks, options)
  void watch.run()
  return watch
}

/** What a watch uses of the locks. */
export type WatchedLocks = Pick<Locks, 'inspect' | 'caveats'>

class Watch implements RoomWatch {
  snapshot: Snapshot = { at: 0, rooms: [], isCut: false, caveats: [], store: { tag: 'present', lookMs: 0 } }
  readonly #locks: WatchedLocks
  readonly #options: WatchOptions
  readonly #history: RoomHistory
  /** Unknown at the start and after an outage: then another server may answer. */
  #caveats: readonly string[] | undefined
  #isStopped = false
  #isAskedAgain = false
  #endPause: () => void = () => {}

  constructor(locks: WatchedLocks, options: WatchOptions) {
    this.#locks = locks
    this.#options = options
    this.#history = new RoomHistory({ ...HISTORY_LIMITS, ...options.history }, options.file, options.prefix)
  }

  get totals(): readonly Totals[] {
    return this.#history.totals
  }

  historyOf(key: string): KeyHistory | undefined {
    return this.#history.of(key)
  }

  get losses(): readonly KeyHold[] {
    return this.#history.losses
  }

  get watched(): readonly WatchedTime[] {
    return this.#history.watched
  }

  get processes(): Pick<Processes, 'view' | 'heardAt'> {
    return this.#history.processes
  }

  renewalsOf(id: string): RenewalFacts | undefined {
    return this.#history.renewalsOf(id)
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

  lookUnlessLooking(): void {
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
      const found = await this.#look(begunMs)
      const tookMs = performance.now() - begunMs
      const pauseMs = Math.max(everyMs - tookMs, pauseAfter[found](tookMs))
      if (!this.#isStopped && !this.#isAskedAgain) await this.#pause(pauseMs)
    }
  }

  async #look(begunMs: number): Promise<LookOutcome> {
    const { prefix = '', maxRooms = 50_000, silentMs: mostMs = SILENT_MS } = this.#options
    const rooms = new Map<string, InspectedRoom>()
    let heardAt = begunMs
    let isCut = false
    let caveats: readonly string[]
    // A request is given up after 10 s. People who look at a screen should learn of the silence sooner.
    const silence = setInterval(() => {
      const silentMs = performance.now() - heardAt
      if (silentMs >= mostMs) this.#away('There is no answer.', Date.now() - silentMs)
    }, SILENT_MS / 3)
    silence.unref()
    const onPage = (): void => {
      heardAt = performance.now()
    }
    try {
      // Kept for this look: a silence in its middle makes them unknown for the next one.
      caveats = this.#caveats ??= await this.#locks.caveats()
      onPage()
      for await (const room of this.#locks.inspect({ prefix, pageSize: PAGE_SIZE, onPage })) {
        isCut = rooms.size >= maxRooms
        if (isCut || this.#isStopped) break
        // A store that scans its keys may return one twice.
        const bounded = boundedRoom(room)
        rooms.set(bounded.key, bounded)
      }
    } catch (error) {
      this.#away(messageOf(error))
      // Closed locks do not open again. The snapshot above says so before the watch ends.
      if (isHoldfastError(error, 'closed')) this.stop()
      return 'nothing'
    } finally {
      clearInterval(silence)
    }
    // Broken off: the rooms that are not read yet are not gone.
    if (this.#isStopped) return 'nothing'
    const at = Date.now()
    const sorted = Array.from(rooms.values()).sort((one, other) => (one.key < other.key ? -1 : 1))
    const isChanged = this.#history.look(rooms, { at, begunMs, isCut })
    this.#tell({
      at,
      rooms: sorted,
      isCut,
      caveats,
      store: { tag: 'present', lookMs: performance.now() - begunMs },
    })
    return isChanged ? 'changes' : 'no changes'
  }

  /** The rooms of the last snapshot stay. */
  #away(message: string, noticedAt: number = Date.now()): void {
    this.#caveats = undefined
    const { store } = this.snapshot
    const sinceAt = store.tag === 'away' ? store.sinceAt : noticedAt
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

/** What a look has found. `nothing`: it has failed. */
type LookOutcome = 'changes' | 'no changes' | 'nothing'

/** The least pause after a look, by what it has found and how long it took. */
const pauseAfter: Readonly<Record<LookOutcome, (tookMs: number) => number>> = {
  changes: (tookMs) => tookMs,
  'no changes': (tookMs) => Math.max(tookMs, Math.min(19 * tookMs, CALM_MS - tookMs)),
  // A failed look was mostly waiting and no work for the store, so its pause may be shorter.
  nothing: (tookMs) => Math.min(tookMs, AWAY_PAUSE_MS),
}

const PAGE_SIZE = 500
const SILENT_MS = 3000
const AWAY_PAUSE_MS = 1000
/** From the start of one look to the next, at most, while nothing changes. */
const CALM_MS = 10_000
