import assert from 'node:assert/strict'
import {
  type AcquireAnswer,
  type Granted,
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
   * Opens another view of the same rooms, as another process would: for a server another connection, for a file the same
   * file again. A store that lives in this process may return the same object each time. Each case closes its views.
   */
  readonly open: () => Store | Promise<Store>
  /**
   * Lets at least this many milliseconds of the store's time pass. If cases share a clock that `pass` turns, run them one
   * after the other. Default: really waits.
   */
  readonly pass?: (ms: number) => void | Promise<void>
  /** Set `false` for a store without `listen`. Then the cases about wakes are left out. Default: `true`. */
  readonly pushes?: boolean
  /** Set `true` if the store's messages may be leases (`Granted`). Otherwise the cases about that are left out. Default: `false`. */
  readonly grants?: boolean
  /**
   * Set `true` if the store uses the clock of this process (memory, a file on this machine). Then the case that turns the
   * client's clock is left out. Default: `false`.
   */
  readonly sharesClock?: boolean
  /**
   * Set `false` for a store that refuses limits other than 1 and `UNLIMITED`, because independent servers cannot count
   * permits. Then the cases about semaphores are left out, and the others use readers. Default: `true`.
   */
  readonly semaphores?: boolean
  /**
   * Set `best-effort` for a store on several independent servers. After an answered call its order is as in other stores.
   * Calls of the same moment may have another order on each server, so the key may stay free until some have asked again. A
   * fence is chosen when a ticket confirms, and not when it is offered the key. Cases that need more are left out.
   * Default: `exact`.
   */
  readonly order?: 'exact' | 'best-effort'
  /**
   * Set `true` for a store that clears expired tickets and admits the next one without a call. Then the cases are left out in
   * which an expiry has an effect only at the next call. Default: `false`.
   */
  readonly expiresUnasked?: boolean
  /**
   * Names what the store still keeps under the prefix after all tickets were released without a cancel, except what fences
   * need. A case fails with these names. Default: only `inspect` is checked.
   */
  readonly leftovers?: (prefix: string) => readonly string[] | Promise<readonly string[]>
}

/** A case of the suite, before a store is given. */
export interface ConformanceScript {
  readonly name: string
  /** The case runs only for stores that have this feature. */
  readonly needs?: 'push' | 'grants' | 'own-clock' | 'lazy-expiry' | 'semaphores' | 'exact-order'
  readonly play: (scene: Scene) => Promise<void>
}

/** Long enough that nothing expires while a case runs, on however busy a machine. */
export const LONG = 120_000

/** For this long a server on a busy machine may need for what takes no time otherwise. */
const BUSY_MS = 30_000

/** A server that an answer did not wait for may have got the request later than the others, by so much on a busy machine. */
const LATE_SERVER_MS = 250

/** Thrown when this machine was too busy for the result of a case to count. The case is repeated with longer times. */
export class TooSlow extends Error {}

export type TicketDraft = Partial<Ticket>

/** The tools of one case: its own keys and tickets, views that are closed at its end, and time. */
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

  get expiresUnasked(): boolean {
    return this.#subject.expiresUnasked ?? false
  }

  /** A limit for tickets that hold together, when the number does not matter. Without semaphores, that of readers. */
  several(limit: number): number {
    return this.semaphores ? limit : UNLIMITED
  }

  /** The answer to a ticket that asks because it was woken. */
  async whenWoken(store: Store, ticket: Ticket): Promise<AcquireAnswer> {
    const giveUpAt = performance.now() + BUSY_MS
    for (;;) {
      const answer = await store.acquire(ticket)
      // Some servers have admitted it, and the others will in a moment.
      if (this.exactOrder || answer.tag !== 'queued' || performance.now() > giveUpAt) return answer
      await new Promise((resolve) => setTimeout(resolve, answer.askAgainMs))
    }
  }

  /** A ticket that excludes every ticket of `several(limit)`. Without semaphores, that of a writer. */
  all(limit: number): Share {
    return this.semaphores ? { units: limit, limit } : { units: 1, limit: 1 }
  }

  async view(): Promise<Store> {
    const store = await this.#subject.open()
    this.#views.push(store)
    return store
  }

  /** A ticket of a mutex that waits and does not expire, unless the draft says otherwise. */
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

  /**
   * A ticket that is offered the key and has to confirm: with a lock-delay, no message is its lease. Without this, somebody
   * who listens to the same view in another case would decide what a release admits it as.
   */
  confirming(draft: TicketDraft = {}): Ticket {
    return this.ticket({ lockDelayMs: 1, ...draft })
  }

  /** A short time that the case is about. It is longer when the case is repeated on a busy machine. */
  span(ms: number): number {
    return ms * this.#stretch
  }

  /** Lets more than this many milliseconds of the store's time pass. */
  async outlive(ms: number): Promise<void> {
    // The clocks of store and process may be rounded to whole milliseconds, and a timer may fire one early.
    const beyondMs = ms + (this.exactOrder ? 25 : LATE_SERVER_MS)
    if (this.#subject.pass !== undefined) await this.#subject.pass(beyondMs)
    else await new Promise((resolve) => setTimeout(resolve, beyondMs))
  }

  /** Starts to watch how long the next steps take; see {@link Stopwatch}. */
  stopwatch(): Stopwatch {
    return new Stopwatch({ counts: this.#subject.pass === undefined })
  }

  async listen(store: Store): Promise<WakeRecorder> {
    assert.ok(store.listen, 'A store without `listen` is tested with `pushes: false`')
    const ears = new WakeRecorder(this.#subject.pass === undefined ? BUSY_MS : 5_000)
    ears.unlisten = await store.listen((wake) => {
      // Other cases may share the view, so their wakes come here, too.
      if (wake.tag !== 'all' && this.#tickets.has(wake.id)) ears.take(wake)
    })
    this.#ears.push(ears)
    return ears
  }

  /**
   * Hands the key over to another view, which these ears listen to, until a message is the lease. A store may have to send
   * to a process before it knows that the process takes its messages. Or the process subscribes to the messages of a key
   * once it waits for that key.
   */
  async introduce(one: Store, other: Store, ears: WakeRecorder): Promise<void> {
    const giveUpAt = performance.now() + BUSY_MS
    while (ears.granted.length === 0) {
      assert.ok(performance.now() < giveUpAt, `No message was a lease within ${BUSY_MS} ms`)
      const [holder, head] = [this.ticket(), this.ticket()]
      heldFence(await one.acquire(holder))
      queuedAnswer(await other.acquire(head))
      await one.release(releaseOf(holder))
      await ears.hear(head.id)
      await other.release(releaseOf(head))
    }
    ears.granted.length = 0
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

  /** Acquires and releases a hundred other keys. A store may use these calls to clear what has expired. */
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
    for (const ears of this.#ears) ears.end()
    for (const store of this.#views) await store.close()
  }
}

/** The wakes of one listener. */
export class WakeRecorder {
  readonly heard: string[] = []
  /** Of the wakes, those that are leases. */
  readonly granted: Granted[] = []
  unlisten: () => void = () => {}
  readonly #awaited = new Map<string, () => void>()
  readonly #withinMs: number

  constructor(withinMs: number) {
    this.#withinMs = withinMs
  }

  take(wake: Granted | { readonly tag: 'ticket'; readonly id: string }): void {
    this.heard.push(wake.id)
    if (wake.tag === 'granted') this.granted.push(wake)
    this.#awaited.get(wake.id)?.()
  }

  /** Resolves when a wake for this ticket comes, or has come already. Rejects after a bounded wait. */
  async hear(id: string): Promise<void> {
    const withinMs = this.#withinMs
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

  /** A wake that nobody waits for any more must not keep the process alive until its time is over. */
  end(): void {
    this.unlisten()
    for (const stopWaiting of this.#awaited.values()) stopWaiting()
  }
}

/** Measures whether an assertion about a short time was made early enough to count. */
export class Stopwatch {
  readonly #startedAt = performance.now()
  readonly #counts: boolean

  /** `counts`: whether the store's time passes as this process's does. */
  constructor({ counts }: { readonly counts: boolean }) {
    this.#counts = counts
  }

  /** Throws if this much time or more has passed. Then the case is repeated with longer times. */
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

/** Asserts that the answer is `held`, and returns its fence. */
export function heldFence(answer: AcquireAnswer | RenewAnswer): bigint {
  if (answer.tag !== 'held')
    throw new assert.AssertionError({ message: `Expected held, got ${show(answer)}` })
  assert.equal(typeof answer.fence, 'bigint')
  return answer.fence
}

/** Asserts that the answer is `queued`, and returns it. */
export function queuedAnswer(answer: AcquireAnswer): Extract<AcquireAnswer, { tag: 'queued' }> {
  if (answer.tag !== 'queued')
    throw new assert.AssertionError({ message: `Expected queued, got ${show(answer)}` })
  return answer
}

/** Asserts that the answer is `busy`, and returns it. */
export function busyAnswer(answer: AcquireAnswer): Extract<AcquireAnswer, { tag: 'busy' }> {
  if (answer.tag !== 'busy')
    throw new assert.AssertionError({ message: `Expected busy, got ${show(answer)}` })
  return answer
}

/** Asserts that the answer is `gone`, and not because of an eviction. */
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
