import type { ServerResponse } from 'node:http'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { assert } from '../base/assert.ts'
import { reportOf } from '../base/thrown.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { GUARDS } from './replies.ts'

/**
 * The open live streams (server-sent events). All viewers share one watch of the store. Without viewers there is none, unless
 * the watch records. A viewer that reads slowly skips messages until it has read the last one, so that nothing piles up.
 */
export class LiveViewers {
  readonly #startWatch: (onSnapshot: () => void) => RoomWatch
  readonly #isRecording: boolean
  readonly #viewers: Set<Viewer> = new Set()
  readonly #awaitingLook: Set<() => void> = new Set()
  #watch: RoomWatch | undefined
  #ending: NodeJS.Timeout | undefined
  #repeating: NodeJS.Timeout | undefined
  /** `again`: the round that runs is followed by another one. */
  #round: 'none' | 'runs' | 'again' = 'none'
  #hasWarned = false
  #isClosed = false

  constructor(
    startWatch: (onSnapshot: () => void) => RoomWatch,
    { isRecording }: { readonly isRecording: boolean } = { isRecording: false },
  ) {
    this.#startWatch = startWatch
    this.#isRecording = isRecording
    if (isRecording) void this.watch
  }

  get isFull(): boolean {
    return this.#viewers.size >= MOST_VIEWERS
  }

  /** Runs on for a minute after the last viewer has left, so that its history is there when a page is loaded again. */
  get watch(): RoomWatch {
    assert(!this.#isClosed, 'the store is watched after the dashboard was closed')
    this.#watch ??= this.#startWatch(() => this.sendAll())
    clearTimeout(this.#ending)
    this.#ending = undefined
    if (this.#viewers.size === 0 && !this.#isRecording) {
      this.#ending = setTimeout(() => this.#stopWatch(), LINGER_MS)
      this.#ending.unref()
    }
    return this.#watch
  }

  /** Resolves once the watch has a fresh snapshot, or reports that the store is away, which takes some seconds at most. */
  async looked(): Promise<RoomWatch> {
    const { watch } = this
    const { snapshot } = watch
    const isKnown = snapshot.store.tag === 'away' || Date.now() - snapshot.at < FRESH_MS
    if (isKnown) return watch
    watch.lookUnlessLooking()
    await new Promise<void>((resolve) => this.#awaitingLook.add(resolve))
    return watch
  }

  /** Sends the view of `query` after every look, until the viewer leaves. The response's head must not be sent yet. */
  join(response: ServerResponse, query: ViewQuery): void {
    // The viewer left during the access check. Its `close` event has passed, so it would never be removed.
    if (isGone(response)) return
    if (this.#isClosed) return void response.destroy()
    const { snapshot } = this.watch
    const isThere = snapshot.at > 0 || snapshot.store.tag === 'away'
    // Before the head: if the view cannot be built, the status can still say so.
    const first = isThere ? messageOf(query, this.watch) : ''
    response.writeHead(200, {
      ...GUARDS,
      'Content-Type': 'text/event-stream; charset=utf-8',
      // `no-transform`: a proxy that compresses would hold messages back until it has enough of them.
      'Cache-Control': 'no-store, no-transform',
      'X-Accel-Buffering': 'no',
    })
    response.write('retry: 2000\n\n')
    const viewer: Viewer = { response, query, blockedAt: undefined }
    this.#viewers.add(viewer)
    response.once('close', () => this.#leave(viewer))
    response.on('error', () => {})
    // With a viewer, the watch does not end.
    void this.watch
    if (isThere) sendTo(viewer, first)
    if (this.#repeating === undefined) this.#repeatLater()
  }

  /** Sends every viewer its view as it is now. While the viewers get an earlier one, all calls together begin one more round. */
  sendAll(): void {
    this.#settleLooks()
    this.#send()
  }

  #send(): void {
    this.#repeatLater()
    if (this.#round !== 'none') this.#round = 'again'
    else void this.#sendRounds()
  }

  /** During a long look the present view is sent again, also if nothing was seen yet: a page takes a silent stream for broken. */
  #repeatLater(): void {
    clearTimeout(this.#repeating)
    this.#repeating = setTimeout(() => this.#send(), QUIET_MS)
    this.#repeating.unref()
  }

  async #sendRounds(): Promise<void> {
    try {
      do {
        this.#round = 'runs'
        const startedAt = performance.now()
        await this.#sendRound()
        // As of the looks, half of the time is left for other work.
        if (this.#isAskedAgain) await sleep(performance.now() - startedAt, undefined, { ref: false })
      } while (this.#isAskedAgain)
    } finally {
      this.#round = 'none'
    }
  }

  get #isAskedAgain(): boolean {
    return this.#round === 'again'
  }

  async #sendRound(): Promise<void> {
    // Most viewers have the same query, and a view of thousands of keys takes a while to build.
    const messages = new Map<string, string>()
    // A viewer that joins during the round has a newer message already.
    for (const viewer of [...this.#viewers]) {
      const { query } = viewer
      // Many different queries would block the process together.
      if (messages.size > 0 && !messages.has(query.name)) await setImmediate()
      const watch = this.#watch
      if (watch === undefined) return
      if (!this.#viewers.has(viewer) || isBlocked(viewer)) continue
      try {
        const message = messages.get(query.name) ?? messageOf(query, watch)
        messages.set(query.name, message)
        sendTo(viewer, message)
      } catch (error) {
        this.#drop(viewer, error)
      }
    }
  }

  /** A view that cannot be built is a mistake in this code. It ends one stream, and neither the others nor the process. */
  #drop({ response }: Viewer, error: unknown): void {
    response.destroy()
    if (this.#hasWarned) return
    this.#hasWarned = true
    process.emitWarning('The dashboard could not build a view.', {
      type: 'HoldfastWarning',
      code: 'HOLDFAST_DASHBOARD',
      detail: reportOf(error),
    })
  }

  close(): void {
    this.#isClosed = true
    for (const { response } of this.#viewers) response.destroy()
    this.#viewers.clear()
    clearTimeout(this.#ending)
    this.#stopWatch()
  }

  #leave(viewer: Viewer): void {
    this.#viewers.delete(viewer)
    if (this.#viewers.size > 0 || this.#watch === undefined) return
    // The getter starts the countdown to the end of the watch.
    void this.watch
  }

  #stopWatch(): void {
    this.#watch?.stop()
    this.#watch = undefined
    clearTimeout(this.#repeating)
    this.#repeating = undefined
    this.#settleLooks()
  }

  #settleLooks(): void {
    for (const resolve of this.#awaitingLook) resolve()
    this.#awaitingLook.clear()
  }
}

/** What a viewer wants to see. */
export interface ViewQuery {
  /** Equal for queries with the same view. */
  readonly name: string
  readonly view: (watch: RoomWatch) => object
}

interface Viewer {
  readonly response: ServerResponse
  readonly query: ViewQuery
  /** Since when the last message is unread; `undefined` when it was read. */
  blockedAt: number | undefined
}

/** With HTTP/2 it is the stream that is destroyed, not the response. */
function isGone(response: ServerResponse & { readonly stream?: { readonly destroyed: boolean } }): boolean {
  return response.destroyed || response.stream?.destroyed === true
}

function messageOf({ view }: ViewQuery, watch: RoomWatch): string {
  return `data: ${JSON.stringify(view(watch))}\n\n`
}

/** Whether the viewer has not read the last message yet. Ends its stream when that takes too long. */
function isBlocked({ response, blockedAt }: Viewer): boolean {
  if (blockedAt === undefined) return false
  if (performance.now() - blockedAt > LONGEST_BLOCK_MS) response.destroy()
  return true
}

function sendTo(viewer: Viewer, message: string): void {
  if (viewer.response.write(message)) return
  viewer.blockedAt = performance.now()
  viewer.response.once('drain', () => {
    viewer.blockedAt = undefined
  })
}

/** Bounds what all viewers together have not read yet to some tens of MB. */
const MOST_VIEWERS = 250
const LINGER_MS = 60_000
const FRESH_MS = 2000
/** Half of the time after which a page takes its stream for broken. */
const QUIET_MS = 10_000
const LONGEST_BLOCK_MS = 30_000
