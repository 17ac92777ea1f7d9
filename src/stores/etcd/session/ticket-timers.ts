import type { Clock } from '../../../contract/clock.ts'
import type { KeyValue, Operation } from '../grpc/messages.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import { Alarm } from './alarm.ts'
import type { LockDelays } from './lock-delays.ts'
import type { OwnKeys } from './own-keys.ts'
import type { OwnTicket } from './own-ticket.ts'
import { retryUntil } from './retry-until.ts'

export interface TicketTimersOptions {
  readonly clock: Clock
  readonly keys: Pick<OwnKeys, 'change'>
  readonly delays: Pick<LockDelays, 'operation' | 'begin'>
  readonly tickets: ReadonlyMap<string, OwnTicket>
  /** The room, if it is watched. */
  roomOf(key: string): EtcdRoom | undefined
  /** The ticket is over. Its key is gone, or another process has it. */
  onExpired(own: OwnTicket, deletion: Deletion | undefined): void
  /** The minimum hold of a holder is over. */
  onMinHoldOver(own: OwnTicket): void
}

/** What the transaction has done by which this process deleted the key of a ticket. */
export interface Deletion {
  readonly revision: number
  /** The lock-delay that the same transaction has written. */
  readonly lockDelay: KeyValue | undefined
}

/**
 * Ends each ticket of this process at its time: its ttl, its acceptance term, its patience, its minimum hold. etcd cannot do
 * that, because the ticket shares its etcd lease with other tickets. If the process dies, hangs or is cut off, etcd ends the
 * lease and with it all tickets.
 */
export class TicketTimers {
  readonly #options: TicketTimersOptions
  readonly #alarm: Alarm
  #isClosed = false

  constructor(options: TicketTimersOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** Call this when a time of a ticket has changed. */
  look(own: OwnTicket): void {
    this.#alarm.by(dueAt(own))
  }

  /** Deletes the key of a ticket whose time is over, if it is still as this process knows it. */
  expire(own: OwnTicket): Promise<void> {
    const { state } = own
    if (state.tag === 'ending') return state.done
    if (state.tag === 'forgotten') return Promise.resolve()
    if (state.tag === 'offered') this.#expireSilent(own)
    // A lock-delay follows only a holder: nobody else may leave unfinished work behind.
    const lockDelayUntil = state.tag === 'held' ? state.until + own.ticket.lockDelayMs : 0
    const done = this.#delete(own, lockDelayUntil)
    own.expired(done)
    return done
  }

  /**
   * Expires the tickets of this process that hold in a room, or are next, and whose time is over. Resolves when their keys are
   * deleted. Undefined if there are none.
   */
  expireFront(room: EtcdRoom): Promise<void> | undefined {
    const { holders, head } = room.divide()
    const now = this.#options.clock.monotonicMs()
    const endings: Promise<void>[] = []
    for (const entry of head === undefined ? holders : [...holders, head]) {
      const own = this.#options.tickets.get(entry.id)
      if (own === undefined || own.createRevision !== entry.createRevision) continue
      const { state } = own
      if (state.tag === 'ending') endings.push(state.done)
      else if (state.tag !== 'waiting' && dueAt(own) <= now && isOver(own, now))
        endings.push(this.expire(own))
    }
    return endings.length === 0 ? undefined : Promise.all(endings).then(() => {})
  }

  close(): void {
    this.#isClosed = true
    this.#alarm.close()
  }

  /**
   * Called when an offer lapses. Expires the waiters right behind it that were silent for an acceptance term, as an offer to them
   * would lapse, too. Stops at a waiter of another process, which that process expires.
   */
  #expireSilent({ ticket: { key }, createRevision }: OwnTicket): void {
    const { clock, tickets, roomOf } = this.#options
    const now = clock.monotonicMs()
    for (const entry of roomOf(key)?.tickets.values() ?? []) {
      if (entry.createRevision <= createRevision) continue
      const own = tickets.get(entry.id)
      if (own?.state.tag !== 'waiting' || own.createRevision !== entry.createRevision) return
      if (own.state.heardAt + own.ticket.acceptMs > now) return
      void this.expire(own)
    }
  }

  /** `lockDelayUntil`: when the lock-delay ends that follows. None follows if that is over. */
  async #delete(own: OwnTicket, lockDelayUntil: number): Promise<void> {
    const { clock, keys, delays } = this.#options
    const { key, id, lockDelayMs } = own.ticket
    let deletion: Deletion | undefined
    // It tries however long that takes. The lease is kept alive for other tickets, so the key ends by itself only if etcd has
    // dropped the lease.
    const isToStop = () => this.#isClosed || own.isForgotten || own.binding.lease.isLost
    await retryUntil(clock, isToStop, async () => {
      const leftMs = lockDelayUntil - clock.monotonicMs()
      const delay = lockDelayMs > 0 && leftMs > 0 ? await delays.operation(key, id, leftMs) : undefined
      if (delay !== undefined) delays.begin(delay, leftMs)
      const operation: Operation = { tag: 'delete', key: own.name }
      const reply = await keys.change(own, () => ({
        apply: delay === undefined ? [operation] : [operation, delay],
      }))
      if (reply === undefined) return
      const { revision } = reply
      deletion = {
        revision,
        lockDelay: delay && { ...delay, createRevision: revision, modRevision: revision },
      }
    })
    this.#options.onExpired(own, deletion)
  }

  #round(): void {
    const now = this.#options.clock.monotonicMs()
    for (const own of [...this.#options.tickets.values()]) {
      if (dueAt(own) <= now) {
        if (isOver(own, now)) void this.expire(own)
        else this.#options.onMinHoldOver(own)
      }
      this.#alarm.by(dueAt(own))
    }
  }
}

/** When a ticket is due: its state ends, or its minimum hold. */
function dueAt({ state, binding: { isForMinHold } }: OwnTicket): number {
  switch (state.tag) {
    case 'waiting':
      return state.rememberedUntil + LATE_MS
    case 'offered':
    case 'leaving':
      return state.until
    case 'held':
      // After its minimum hold a request is under way that binds the key to another lease.
      return isForMinHold && state.minHoldUntil > 0 ? Math.min(state.until, state.minHoldUntil) : state.until
    case 'ending':
    case 'forgotten':
      return Number.POSITIVE_INFINITY
    default:
      return state satisfies never
  }
}

/** Whether a ticket that is due is at its end, and not only at the end of its minimum hold. */
function isOver({ state }: OwnTicket, now: number): boolean {
  return state.tag !== 'held' || state.until <= now
}

/**
 * A waiter that was silent for too long is expired when its turn comes. If its turn does not come, it is expired this much later.
 */
const LATE_MS = 5000
