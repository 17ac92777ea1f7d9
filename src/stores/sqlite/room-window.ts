import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import {
  type Holder,
  openRoom,
  type Room,
  type StoreTime,
  type TicketWake,
  type Tombstone,
  type VerbResult,
  type Waiter,
} from '../../law/room.ts'
import { isConstraint } from './failures.ts'
import { isGood, leastLaterUs, type Moment, timeSince } from './fence-clock.ts'
import type { CrowdRow, HolderRow, SqliteStatements, WaiterRow } from './statements.ts'

/** The ticket that a step is about, and the time. */
export interface StepRequest {
  readonly key: string
  /** The ticket whose rows are read; `undefined` reads the whole room. */
  readonly id: string | undefined
  /** Where the ticket's process receives wakes; `undefined` when another process asks about the ticket. */
  readonly inbox: string | undefined
  /** Whether the process that listens at this address takes a message now. */
  readonly reaches: (inbox: string) => boolean
  readonly time: StoreTime
}

/** An answer of the law, and the messages to send for what it changed. */
export interface StepResult<A> {
  readonly answer: A
  readonly notices: readonly Notice[]
}

export interface TimedResult<A> extends StepResult<A> {
  /** That of the fence clock, after the step. */
  readonly moment: Moment
}

export interface Notice {
  readonly key: string
  readonly wake: TicketWake
  /** Where the ticket's process listens; empty when it does not. */
  readonly inbox: string
}

/**
 * Runs one verb of the law on a room in the file. This is no second implementation of the law: inside the transaction,
 * `law/room.ts` decides about the part of the room that the verb can change, and the changes are written back. So a step costs
 * about the same in a room of one and in a room of a thousand:
 *
 * - Of the holders, the law gets the ticket's own and those that have expired. One more holder, the crowd, stands for all
 *   others. The law needs only the sum of their units, their smallest limit and their first expiry, which the file keeps.
 * - Of the queue, the law gets the first few waiters, and the ticket's own place. The law reads the queue from the head, and
 *   stops at the first waiter that may not hold yet. If all of these few are gone afterwards, a waiter behind them may hold,
 *   too. Then nothing is written, and the step, which is a pure function, runs again with a wider window.
 */
export function step<A>(
  statements: SqliteStatements,
  request: StepRequest,
  verb: (room: Room, time: StoreTime) => VerbResult<A>,
): TimedResult<A> {
  const { key } = request
  try {
    for (let width = request.id === undefined ? EVERYBODY : FIRST_WIDTH; ; width *= 8) {
      const window = new RoomWindow(statements, request, width)
      const { answer, wakes } = verb(window.room, window.time)
      if (window.isTooNarrow()) continue
      window.save()
      const notices = wakes.map((wake) => ({ key, wake, inbox: window.inboxOf(wake.id) }))
      return { answer, notices, moment: window.moment }
    }
  } catch (error) {
    // Two infinite numbers have no difference, for example.
    throw isConstraint(error) ? damagedRoom(key, 'a number that Holdfast never wrote', error) : error
  }
}

/** A whole room, for people to look at. */
export function readRoom(statements: SqliteStatements, key: string, time: StoreTime): Room {
  const request = { key, id: undefined, inbox: undefined, reaches: () => false, time }
  return new RoomWindow(statements, request, EVERYBODY).room
}

/** Enough for a hand-over: the waiter that is let in, and the next one, which is not. */
const FIRST_WIDTH = 2
const EVERYBODY = 2 ** 40

// No ticket has an id like these.
const CROWD = '\u0001crowd'
const NO_TICKET = '\u0001none'

// Places in a WaiterRow.
const HEARD_AT = 11
const REMEMBERED_UNTIL = 12
const GROUP_NAME = 13
const NO_GROUP = { name: '', heardAt: 0, rememberedUntil: 0 }

class RoomWindow {
  readonly room: Room
  readonly time: StoreTime
  readonly #statements: SqliteStatements
  readonly #request: StepRequest
  readonly #width: number
  // What the file had, to see afterwards what has changed. Keyed by the law's objects and not by id: a ticket that expired and
  // asks again is a new one.
  readonly #holders = new Map<Holder, HolderRow>()
  readonly #waiters = new Map<Waiter, WaiterRow>()
  readonly #inboxes = new Map<string, string>()
  readonly #tombstone: Tombstone | undefined
  /** That of the fence clock. */
  moment: Moment
  readonly #lastFence: number
  readonly #closedUntil: number
  /** Higher than the fences of all holders that were dropped. */
  #above = 0
  /** The group that was read last: neighbours in the queue are often in the same one. */
  #group = NO_GROUP
  /** The ids that were read, from the head of the queue on. */
  #heads: readonly string[] = []

  constructor(statements: SqliteStatements, request: StepRequest, width: number) {
    this.#statements = statements
    this.#request = request
    this.#width = width
    const { key, id, time } = request
    const look = statements.look.get(key, id ?? NO_TICKET, time.ms)
    if (look === undefined)
      throw new StoreError(
        'store-refused',
        'The lock file is damaged: its table `meta` is empty. Delete it with its -wal and -shm.',
      )
    const [
      units,
      limit,
      lockDelayMs,
      fence,
      state,
      expiresAt,
      holdUntil,
      inbox,
      clockMs,
      clockUs,
      closedUntil,
      waiting,
      otherLimit,
      otherExpiresAt,
      otherFence,
      crowdUnits,
      crowdFence,
      evicted,
      reason,
    ] = look
    this.moment = { ms: clockMs, us: clockUs }
    this.time = timeSince(this.moment, time)
    this.#lastFence = checkedFence(Math.max(units === null ? 0 : fence, otherFence, crowdFence), key)
    this.#closedUntil = closedUntil
    this.room = openRoom(this.#lastFence, (waiter) => request.reaches(this.inboxOf(waiter)))
    this.room.closedUntil = closedUntil
    // Some of what was read may have expired: the law has to look.
    this.room.nextExpiry = Number.NEGATIVE_INFINITY

    if (id === undefined) this.#readHolders()
    else {
      if (units !== null)
        this.#enter([id, units, limit, lockDelayMs, fence, state, expiresAt, holdUntil, inbox, '', 0])
      if (otherLimit === 1) {
        // A mutex has no other holder.
        if (otherExpiresAt <= time.ms) this.#readHolders()
        else this.#enterCrowd(1, otherLimit, otherExpiresAt)
      } else if (otherLimit !== null) this.#readCrowd(crowdUnits - (units ?? 0))
      if (evicted !== null) {
        // The file shows only one that is still in force.
        this.#tombstone = { until: Number.POSITIVE_INFINITY, evicted: evicted !== 0, reason }
        this.room.tombstones.set(id, this.#tombstone)
      }
    }
    if (waiting !== 0) this.#readQueue()
  }

  /** Whether a waiter behind the window may have come to the head of the queue. */
  isTooNarrow(): boolean {
    return this.#heads.length === this.#width && !this.#heads.some((id) => this.room.queue.has(id))
  }

  inboxOf(id: string): string {
    return this.#inboxes.get(id) ?? ''
  }

  /** Writes what the law has changed. */
  save(): void {
    const { key, time } = this.#request
    this.#saveHolders()
    this.#saveQueue()
    for (const [id, tombstone] of this.room.tombstones) {
      if (tombstone === this.#tombstone) continue
      this.#statements.bury.run(key, id, tombstone.until, Number(tombstone.evicted), tombstone.reason)
    }
    if (this.room.closedUntil !== this.#closedUntil) this.#statements.shut.run(key, this.room.closedUntil)
    else if (this.#closedUntil > 0 && this.#closedUntil <= time.ms) this.#statements.open.run(key)
    this.#saveClock()
  }

  /** Keeps the next fence of this key higher, even if the room leaves nothing behind. */
  #saveClock(): void {
    const { ms, us } = this.time
    const { lastFence } = this.room
    const granted = lastFence !== this.#lastFence
    // A ticket may be granted the key and evicted by one step. Its message has told the fence.
    if (granted && !this.#isHeldUnder(lastFence)) this.#above = Math.max(this.#above, lastFence + 1)
    // Fences run ahead of the clock when one step admits many, or when the clock stands still.
    if (this.#above > leastLaterUs(this.moment, this.time) || (granted && !isGood(this.moment, this.time))) {
      this.moment = { ms, us: Math.max(us, this.#above) }
      this.#statements.setClock.run(this.moment.ms, this.moment.us)
    }
  }

  #isHeldUnder(fence: number): boolean {
    for (let entry = this.room.holders.first; entry !== undefined; entry = entry.next)
      if (entry.value.fence === fence) return true
    return false
  }

  #readHolders(): void {
    const { key, id } = this.#request
    for (const row of this.#statements.holders.all(key, id ?? NO_TICKET)) this.#enter(row)
  }

  #readCrowd(units: number): void {
    const { key, id = NO_TICKET, time } = this.#request
    const [overdueUnits, limit, expiresAt] = this.#statements.crowd.get(key, id, time.ms) as CrowdRow
    if (overdueUnits > 0) {
      for (const row of this.#statements.overdue.all(key, id, time.ms)) this.#enter(row)
    }
    if (expiresAt !== null) this.#enterCrowd(units - overdueUnits, limit, expiresAt)
  }

  #enter(row: HolderRow): void {
    const [id, units, limit, lockDelayMs, fence, state, expiresAt, holdUntil, inbox, owner, since] = row
    const ticket = this.#ticket({ id, units, limit, lockDelayMs, owner })
    const known = checkedFence(fence, this.#request.key)
    const holder: Holder = { ticket, fence: known, since, state, expiresAt, holdUntil }
    this.room.holders.set(id, holder)
    this.room.sum.add(ticket)
    this.#holders.set(holder, row)
    this.#inboxes.set(id, inbox)
  }

  #enterCrowd(units: number, limit: number, expiresAt: number): void {
    const ticket = this.#ticket({ id: CROWD, units, limit })
    this.room.holders.set(CROWD, { ticket, fence: 0, since: 0, state: 'held', expiresAt, holdUntil: 0 })
    this.room.sum.add(ticket)
  }

  #readQueue(): void {
    const { key, id } = this.#request
    const rows = this.#statements.queue.all(key, this.#width)
    for (const row of rows) this.#enqueue(row)
    this.#heads = rows.map(([headId]) => headId)
    if (rows.length < this.#width || id === undefined || this.room.queue.has(id)) return
    const own = this.#statements.waiter.get(key, id)
    if (own !== undefined) this.#enqueue(own)
  }

  #enqueue(stored: WaiterRow): void {
    const row = this.#heardWithGroup(stored)
    const [id, , units, limit, ttlMs, acceptMs, minHoldMs, lockDelayMs, owner, inbox, ...times] = row
    const [since, heardAt, rememberedUntil] = times
    const ticket = this.#ticket({ id, units, limit, ttlMs, acceptMs, minHoldMs, lockDelayMs, owner })
    const waiter: Waiter = { ticket, since, heardAt, rememberedUntil }
    this.room.queue.set(id, waiter)
    this.#waiters.set(waiter, row)
    this.#inboxes.set(id, inbox)
  }

  /** The row with the times of the waiter's group, if these are later. */
  #heardWithGroup(row: WaiterRow): WaiterRow {
    const name = row[GROUP_NAME]
    if (name === '') return row
    if (this.#group.name !== name) {
      const [heardAt, rememberedUntil] = this.#statements.group.get(this.#request.key, name) ?? [0, 0]
      this.#group = { name, heardAt, rememberedUntil }
    }
    const { heardAt, rememberedUntil } = this.#group
    const times = [Math.max(row[HEARD_AT], heardAt), Math.max(row[REMEMBERED_UNTIL], rememberedUntil)]
    return [...row.slice(0, HEARD_AT), ...times, name] as unknown as WaiterRow
  }

  /** The ttl and the other options that are not stored are NaN here. The law takes them from the request. */
  #ticket(stored: Pick<Ticket, 'id' | 'units' | 'limit'> & Partial<Ticket>): Ticket {
    const { key } = this.#request
    return {
      key,
      acceptMs: 0,
      lockDelayMs: 0,
      owner: '',
      ttlMs: NaN,
      patienceMs: NaN,
      minHoldMs: NaN,
      ...stored,
    }
  }

  #saveHolders(): void {
    const { key } = this.#request
    for (const [holder, [id]] of this.#holders) {
      if (this.room.holders.get(id) === holder) continue
      this.#statements.dropHolder.run(key, id)
      this.#above = Math.max(this.#above, holder.fence + 1)
    }
    for (const [id, holder] of this.room.holders) {
      const row = this.#holders.get(holder)
      if (row !== undefined) this.#keepHolder(row, holder)
      else if (id !== CROWD) this.#addHolder(id, holder)
    }
  }

  #addHolder(id: string, { ticket, fence, since, state, expiresAt, holdUntil }: Holder): void {
    const { key, units, limit, lockDelayMs, owner } = ticket
    const terms = [units, limit, lockDelayMs, owner, this.#inboxNow(id)] as const
    this.#statements.addHolder.run(key, id, ...terms, fence, since, state, expiresAt, holdUntil)
  }

  #keepHolder(row: HolderRow, { state, expiresAt, holdUntil }: Holder): void {
    const [id, , , , , oldState, oldExpiresAt, oldHoldUntil, oldInbox] = row
    const inbox = this.#inboxNow(id)
    const same =
      state === oldState && expiresAt === oldExpiresAt && holdUntil === oldHoldUntil && inbox === oldInbox
    if (!same) this.#statements.keepHolder.run(state, expiresAt, holdUntil, inbox, this.#request.key, id)
  }

  #saveQueue(): void {
    const { key } = this.#request
    for (const [waiter, [id, place]] of this.#waiters) {
      if (this.room.queue.get(id) !== waiter) this.#statements.dropWaiter.run(key, place)
    }
    for (const [id, waiter] of this.room.queue) {
      const row = this.#waiters.get(waiter)
      if (row === undefined) this.#addWaiter(id, waiter)
      else this.#keepWaiter(row, waiter)
    }
  }

  #addWaiter(id: string, { ticket, since, heardAt, rememberedUntil }: Waiter): void {
    const { key, units, limit, ttlMs, acceptMs, minHoldMs, lockDelayMs, owner } = ticket
    const durations = [ttlMs, acceptMs, minHoldMs, lockDelayMs] as const
    const terms = [units, limit, ...durations, owner, this.#inboxNow(id)] as const
    this.#statements.addWaiter.run(key, id, ...terms, since, heardAt, rememberedUntil)
  }

  #keepWaiter(row: WaiterRow, { heardAt, rememberedUntil }: Waiter): void {
    const [id, place, , , , , , , , oldInbox, , oldHeardAt, oldRememberedUntil] = row
    const inbox = this.#inboxNow(id)
    const same = heardAt === oldHeardAt && rememberedUntil === oldRememberedUntil && inbox === oldInbox
    if (!same) this.#statements.keepWaiter.run(heardAt, rememberedUntil, inbox, this.#request.key, place)
  }

  /** Where the ticket's process listens from now on: the process that asks is the one that listens. */
  #inboxNow(id: string): string {
    return (id === this.#request.id ? this.#request.inbox : undefined) ?? this.inboxOf(id)
  }
}

/**
 * Fences are µs since 1970 and rise by one. Another program may have written to the file. A fence that it made up would make the
 * clock of all fences useless, and so every key.
 */
function checkedFence(fence: number, key: string): number {
  if (Number.isSafeInteger(fence) && fence >= 0 && fence < MOST_FENCE) return fence
  throw damagedRoom(key, 'a fence that Holdfast never gave')
}

function damagedRoom(key: string, what: string, cause?: unknown): StoreError {
  return new StoreError(
    'store-refused',
    `The lock file is damaged: it holds ${what}. Stop the processes that use the file and delete it with its -wal and -shm. Nothing but held locks is lost.`,
    { key, cause },
  )
}

/** In the year 2255. */
const MOST_FENCE = 9_000_000_000_000_000
