import assert from 'node:assert/strict'
import {
  type AcquireAnswer,
  type HolderView,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomView,
  type Store,
  type Ticket,
  UNLIMITED,
  type WaiterView,
} from '../contract/store.ts'
import type { Share } from '../law/law.ts'

/** How a store under test is reached. */
export interface ConformanceSubject {
  /**
   * Opens another view of the same rooms, as another process would: for a server, one more connection; for a file, the
   * file once more. A store that lives in this process may return the same object each time. Every view that a case
   * opened is closed at its end.
   */
  readonly open: () => Store | Promise<Store>
  /**
   * Lets at least so much of the store's time pass. Default: really waits. Cases that share such a clock have to be run
   * one after the other.
   */
  readonly pass?: (ms: number) => void | Promise<void>
  /** `false` for a store without `listen`: the cases about wakes are left out. Default: `true`. */
  readonly pushes?: boolean
  /**
   * `true` when the clock of this process is the store's own (memory, a file on this machine): then the case that turns
   * the client's clock is left out. Default: `false`.
   */
  readonly sharesClock?: boolean
  /**
   * `false` for a store that refuses limits other than 1 and `UNLIMITED`, as on several servers that do not know of one
   * another permits cannot be counted: cases about semaphores are left out, the others use readers. Default: `true`.
   */
  readonly semaphores?: boolean
  /**
   * `best-effort` for a store on several servers that do not know of one another. What follows from a call that was
   * answered is as everywhere; but calls that come at the same moment may be in another order on each server, so that nobody
   * may have the key until some of them have asked again, and a fence is chosen when a ticket confirms, not when it is
   * offered the key. Cases that need more are left out. Default: `exact`.
   */
  readonly order?: 'exact' | 'best-effort'
  /**
   * `true` for a store that ends by itself what has expired and admits who is next, without being asked: then the cases in
   * which an expiry shows only with the next call are left out. Default: `false`.
   */
  readonly expiresUnasked?: boolean
  /**
   * What the store still keeps under the prefix when all tickets were released without a cancel, apart from what the
   * fence rule needs: names for the failure message. Default: only `inspect` is believed.
   */
  readonly leftovers?: (prefix: string) => readonly string[] | Promise<readonly string[]>
}

/** One case before it meets a store. */
export interface ConformanceScript {
  readonly name: string
  /** Only for stores that have it. */
  readonly needs?: 'push' | 'own-clock' | 'lazy-expiry' | 'semaphores' | 'exact-order'
  readonly play: (scene: Scene) => Promise<void>
}

/** Long enough that nothing expires while a case runs, on however busy a machine. */
export const LONG = 120_000

/** Thrown when this machine was too busy for a case to say anything; the case is then repeated with longer spans. */
export class TooSlow extends Error {}

export type TicketDraft = Partial<Ticket>

/** What one case works with: keys and tickets of its own, views that are closed for it, and time. */
export class Scene {
  readonly prefix: string = `conformance:${crypto.randomUUID()}:`
  readonly key: string = `${this.prefix}key`
  readonly #subject: ConformanceSubject
  readonly #stretch: number
  readonly #views: Store[] = []
  readonly #tickets = new Map<string, Ticket>()
  readonly #ears: WakeRecorder[] = []

  constructor(subject: ConformanceSubject, stretch: number) {
    this.#subject = subject
    this.#stretch = stretch
  }

  get pushes(): boolean {
    return this.#subject.pushes ?? true
  }

  get leftovers(): ConformanceSubject['leftovers'] {
    return this.#subject.leftovers
  }

  get semaphores(): boolean {
    return this.#subject.semaphores ?? true
  }

  get exactOrder(): boolean {
    return this.#subject.order !== 'best-effort'
  }

  /** The limit of tickets that hold together where it does not matter how many: of readers, if there are no semaphores. */
  several(limit: number): number {
    return this.semaphores ? limit : UNLIMITED
  }

  /** What a ticket is told that asks because it was woken. */
  async whenWoken(store: Store, ticket: Ticket): Promise<AcquireAnswer> {
    const giveUpAt = performance.now() + 10_000
    for (;;) {
      const answer = await store.acquire(ticket)
      // Let in by some servers, and by the others in a moment.
      if (this.exactOrder || answer.tag !== 'queued' || performance.now() > giveUpAt) return answer
      await new Promise((resolve) => setTimeout(resolve, answer.askAgainMs))
    }
  }

  /** A ticket that takes all there is of what tickets of `several(limit)` share: of a writer, if there are no semaphores. */
  all(limit: number): Share {
    return this.semaphores ? { units: limit, limit } : { units: 1, limit: 1 }
  }

  async view(): Promise<Store> {
    const store = await this.#subject.open()
    this.#views.push(store)
    return store
  }

  /** A ticket of a mutex that waits and does not expire, but for what the draft says. */
  ticket(draft: TicketDraft = {}): Ticket {
    const ttlMs = draft.ttlMs ?? LONG
    const ticket: Ticket = {
      key: this.key,
      id: crypto.randomUUID(),
      units: 1,
      limit: 1,
      ttlMs,
      acceptMs: Math.min(ttlMs, LONG),
      patienceMs: LONG,
      minHoldMs: 0,
      lockDelayMs: 0,
      owner: '{"case":"conformance"}',
      ...draft,
    }
    this.#tickets.set(ticket.id, ticket)
    return ticket
  }

  /** A short time that matters to the case: longer when the machine turned out to be too busy for it. */
  span(ms: number): number {
    return ms * this.#stretch
  }

  /** Lets the store's time pass beyond this many milliseconds. */
  async outlive(ms: number): Promise<void> {
    // The clocks of store and process may be rounded to whole milliseconds, and a timer may fire one early.
    const beyondMs = ms + 25
    if (this.#subject.pass !== undefined) await this.#subject.pass(beyondMs)
    else await new Promise((resolve) => setTimeout(resolve, beyondMs))
  }

  /** Starts to watch how long the next steps take; see {@link Stopwatch}. */
  stopwatch(): Stopwatch {
    return new Stopwatch({ counts: this.#subject.pass === undefined })
  }

  async listen(store: Store): Promise<WakeRecorder> {
    assert.ok(store.listen, 'A store without `listen` is tested with `pushes: false`')
    const ears = new WakeRecorder()
    ears.unlisten = await store.listen((wake) => {
      // Other cases may share the view, and their wakes with it.
      if (wake.tag === 'ticket' && this.#tickets.has(wake.id)) ears.take(wake.id)
    })
    this.#ears.push(ears)
    return ears
  }

  async room(store: Store, key: string = this.key): Promise<RoomView | undefined> {
    return (await allRooms(store, key)).find((room) => room.key === key)
  }

  async holders(store: Store, key: string = this.key): Promise<readonly HolderView[]> {
    return (await this.room(store, key))?.holders ?? []
  }

  async queue(store: Store, key: string = this.key): Promise<readonly WaiterView[]> {
    return (await this.room(store, key))?.queue ?? []
  }

  /** A store may use the occasion to clear away what nobody needs any more. */
  async visitOtherKeys(store: Store): Promise<void> {
    for (let visit = 0; visit < 100; visit += 1) {
      const ticket = this.ticket({ key: `${this.key}:visit:${visit}` })
      await store.acquire(ticket)
      await store.release(releaseOf(ticket))
    }
  }

  /** Releases every ticket of the case and proves that no room is left. */
  async leaveNothing(): Promise<void> {
    const store = await this.view()
    await Promise.all([...this.#tickets.values()].map((ticket) => store.release(releaseOf(ticket))))
    const giveUpAt = performance.now() + 10_000
    for (;;) {
      const rooms = await allRooms(store, this.prefix)
      if (rooms.length === 0) return
      // A minimum hold and a lock-delay are the only things that may outlast the release of all tickets.
      const waitMs = Math.max(...rooms.map(closingMs))
      assert.ok(waitMs > 0 && performance.now() < giveUpAt, `Left behind: ${show(rooms)}`)
      await this.outlive(waitMs)
    }
  }

  async end(): Promise<void> {
    for (const ears of this.#ears) ears.unlisten()
    for (const store of this.#views) await store.close()
  }
}

/** Which tickets a listener was woken for. */
export class WakeRecorder {
  readonly heard: string[] = []
  unlisten: () => void = () => {}
  readonly #awaited = new Map<string, () => void>()

  take(id: string): void {
    this.heard.push(id)
    this.#awaited.get(id)?.()
  }

  /** Resolves once a wake for this ticket has come (also if it came before), rejects after a bounded wait. */
  async hear(id: string, withinMs = 5_000): Promise<void> {
    if (this.heard.includes(id)) return
    await new Promise<void>((resolve, reject) => {
      // After a block of the event loop, timers fire before what has arrived meanwhile is read: one turn later it is.
      const giveUp = () => reject(new assert.AssertionError({ message: `No wake within ${withinMs} ms` }))
      const timer = setTimeout(() => setImmediate(() => setImmediate(giveUp)), withinMs)
      this.#awaited.set(id, () => {
        clearTimeout(timer)
        resolve()
      })
    })
    this.#awaited.delete(id)
  }
}

/** Tells whether an assertion about a short time was asked in time to mean anything. */
export class Stopwatch {
  readonly #startedAt = performance.now()
  readonly #counts: boolean

  /** `counts`: whether the time that passes here is the store's. */
  constructor({ counts }: { readonly counts: boolean }) {
    this.#counts = counts
  }

  /** Goes on only while less than this has passed; otherwise the case is repeated with longer spans. */
  within(ms: number): void {
    const tookMs = performance.now() - this.#startedAt
    if (!this.#counts || tookMs < ms) return
    throw new TooSlow(`The machine took ${Math.round(tookMs)} ms for steps that have ${ms} ms`)
  }
}

/** Every room under the prefix, page by page. */
export async function allRooms(store: Store, prefix: string, count = 100): Promise<readonly RoomView[]> {
  const rooms: RoomView[] = []
  let cursor: string | undefined
  for (let pages = 0; pages < 10_000; pages += 1) {
    const page = await store.inspect({ prefix, cursor, count })
    assert.ok(page.rooms.length <= count, `A page of ${count} rooms held ${page.rooms.length}`)
    rooms.push(...page.rooms)
    if (page.next === undefined) return rooms
    cursor = page.next
  }
  throw new assert.AssertionError({ message: 'inspect never came to its last page' })
}

/** The fence of an answer that has to be `held`. */
export function heldFence(answer: AcquireAnswer | RenewAnswer): bigint {
  if (answer.tag !== 'held')
    throw new assert.AssertionError({ message: `Expected held, got ${show(answer)}` })
  assert.equal(typeof answer.fence, 'bigint')
  return answer.fence
}

/** An acquire that has to be queued. */
export function queuedAnswer(answer: AcquireAnswer): Extract<AcquireAnswer, { tag: 'queued' }> {
  if (answer.tag !== 'queued')
    throw new assert.AssertionError({ message: `Expected queued, got ${show(answer)}` })
  return answer
}

/** An acquire that has to be busy. */
export function busyAnswer(answer: AcquireAnswer): Extract<AcquireAnswer, { tag: 'busy' }> {
  if (answer.tag !== 'busy')
    throw new assert.AssertionError({ message: `Expected busy, got ${show(answer)}` })
  return answer
}

/** An answer that has to say that the ticket is gone, and that nobody evicted it. */
export function assertGone(answer: AcquireAnswer | RenewAnswer | undefined): void {
  if (answer?.tag !== 'gone' || answer.evicted)
    throw new assert.AssertionError({ message: `Expected gone and not evicted, got ${show(answer)}` })
}

export function releaseOf({ key, id }: Ticket): ReleaseRequest {
  return { key, id, cancel: false }
}

export function cancelOf({ key, id }: Ticket): ReleaseRequest {
  return { key, id, cancel: true }
}

export function ids(views: readonly { readonly id: string }[]): readonly string[] {
  return views.map((view) => view.id)
}

/** For failure messages. JSON has no bigint. */
export function show(value: unknown): string {
  return (
    JSON.stringify(value, (_, part: unknown) => (typeof part === 'bigint' ? `${part}n` : part)) ?? 'undefined'
  )
}

function closingMs(room: RoomView): number {
  const someoneIsThere = room.queue.length > 0 || room.holders.some((holder) => holder.state !== 'leaving')
  return someoneIsThere ? 0 : Math.max(room.closedMs, ...room.holders.map((holder) => holder.remainingMs))
}
