import type { Clock } from '../../../contract/clock.ts'
import type { Operation } from '../grpc/messages.ts'
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
  /** A room that is watched. */
  roomOf(key: string): EtcdRoom | undefined
  /** Its key is no longer ours; `isDeleted`: and it is no longer there. */
  onExpired(own: OwnTicket, outcome: { readonly isDeleted: boolean }): void
  /** The minimum hold of a holder is over. */
  onMinHoldOver(own: OwnTicket): void
}

/**
 * Ends each ticket of this process at its time: its ttl, its acceptance term, its patience, its minimum hold. etcd cannot do it, as
 * the ticket shares its lease with others, which live on. If the process dies, hangs or is cut off, etcd ends the lease, and with it
 * all tickets.
 */
export class TicketTimers {
  readonly #options: TicketTimersOptions
  readonly #alarm: Alarm
  #isClosed = false

  constructor(options: TicketTimersOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, () => this.#round())
  }

  /** The times of a ticket have changed. */
  look(own: OwnTicket): void {
    this.#alarm.by(dueAt(own))
  }

  /** Deletes the key of a ticket whose time is over, if it is still as this process knows it. */
  expire(own: OwnTicket): Promise<void> {
    const { state } = own
    if (state.tag === 'ending') return state.done
    if (state.tag === 'forgotten') return Promise.resolve()
    if (state.tag === 'offered') this.#expireSilent(own)
    // Only a holder may leave unfinished work behind.
    const lockDelayUntil = state.tag === 'held' ? state.until + own.ticket.lockDelayMs : 0
    const done = this.#delete(own, lockDelayUntil)
    own.expired(done)
    return done
  }

  /**
   * Tickets of this process at the front of a room: expires those whose time is over. Resolves when the keys of those that are being
   * deleted are gone; undefined when there are none.
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
   * An offer that lapses also lapses for the waiters right behind it that have been silent for as long as an offer to them would
   * stand. Those of another process are the matter of that process.
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

  /** `lockDelayUntil`: the end of the lock-delay that follows, if that lies ahead. */
  async #delete(own: OwnTicket, lockDelayUntil: number): Promise<void> {
    const { clock, keys, delays } = this.#options
    const { key, id, lockDelayMs } = own.ticket
    let isDeleted = false
    // However long it takes: the lease is kept alive for others, and only etcd can say that it has dropped it all the same.
    const isToStop = () => this.#isClosed || own.binding.lease.isLost
    await retryUntil(clock, isToStop, async () => {
      const operations: Operation[] = [{ tag: 'delete', key: own.name }]
      const leftMs = lockDelayUntil - clock.monotonicMs()
      if (lockDelayMs > 0 && leftMs > 0) {
        const delay = await delays.operation(key, id, leftMs)
        operations.push(delay)
        delays.begin(delay.key, leftMs)
      }
      isDeleted = (await keys.change(own, () => ({ apply: operations }))) !== undefined
    })
    this.#options.onExpired(own, { isDeleted })
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

/** When something is to be done about a ticket. */
function dueAt({ state, binding: { isForMinHold } }: OwnTicket): number {
  switch (state.tag) {
    case 'waiting':
      return state.rememberedUntil + LATE_MS
    case 'offered':
    case 'leaving':
      return state.until
    case 'held':
      // Once its minimum hold is over, the request that unpins it is under way.
      return isForMinHold && state.minHoldUntil > 0 ? Math.min(state.until, state.minHoldUntil) : state.until
    case 'ending':
    case 'forgotten':
      return Number.POSITIVE_INFINITY
    default:
      return state satisfies never
  }
}

/** Whether what is due is its end. */
function isOver({ state }: OwnTicket, now: number): boolean {
  return state.tag !== 'held' || state.until <= now
}

/** A waiter that is not heard of in time is passed over when its turn comes. If its turn never comes, it is forgotten after so long. */
const LATE_MS = 5000
