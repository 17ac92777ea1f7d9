import { type Ticket, UNLIMITED } from '../../../contract/store.ts'
import { StoreError } from '../../../errors.ts'
import type { KeyValue } from '../grpc/messages.ts'
import type { RoomNames } from './room-names.ts'

/**
 * What is kept under the key of a ticket, as JSON. Whether it holds or waits is not written down: that follows from who
 * came before it and is still there.
 */
export type TicketValue = KeptTicket | Tombstone | Closing

export interface KeptTicket {
  /** `leaving`: released before its minimum hold was over. */
  readonly state: 'here' | 'leaving'
  readonly units: number
  readonly limit: number
  readonly ttlMs: number
  readonly lockDelayMs: number
  /** Bound to a lease that lasts for its minimum hold. */
  readonly pinned: boolean
  /** When it came, by the wall clock of its process: for people only. */
  readonly at: number
  readonly owner: string
}

export interface Tombstone {
  readonly state: 'gone'
  readonly evicted: boolean
  readonly reason: string
}

export interface Closing {
  readonly state: 'closing'
  readonly ms: number
}

/** A key under a room, as it was seen at some revision. */
export interface Entry {
  readonly name: string
  readonly key: string
  readonly id: string
  readonly createRevision: number
  readonly modRevision: number
  readonly lease: number
  readonly value: TicketValue
}

/** What is kept of a ticket. */
export function kept(
  { units, limit, ttlMs, lockDelayMs, owner }: Ticket,
  { at, state = 'here', pinned = false }: { at: number; state?: 'here' | 'leaving'; pinned?: boolean },
): KeptTicket {
  return { state, units, limit, ttlMs, lockDelayMs, pinned, at, owner }
}

/** As it is written; what is usual is left out. */
export function ticketValue({
  state,
  units,
  limit,
  ttlMs,
  lockDelayMs,
  pinned,
  at,
  owner,
}: KeptTicket): string {
  const usual = `{"units":${units},"ttlMs":${ttlMs},"at":${at},"owner":${JSON.stringify(owner)}`
  const limited = limit === UNLIMITED ? '' : `,"limit":${limit}`
  const delayed = lockDelayMs === 0 ? '' : `,"lockDelayMs":${lockDelayMs}`
  return `${usual}${limited}${delayed}${pinned ? ',"pinned":true' : ''}${state === 'leaving' ? ',"state":"leaving"' : ''}}`
}

export function tombstoneValue(tombstone: { evicted: boolean; reason?: string }): string {
  return JSON.stringify({ state: 'gone', ...tombstone })
}

export function closingValue(ms: number): string {
  return JSON.stringify({ state: 'closing', ms })
}

/** @throws {StoreError} when something else writes under the same prefix. */
export function entryOf(pair: KeyValue, names: RoomNames): Entry {
  const { key, id } = names.parse(pair.key)
  const { createRevision, modRevision, lease } = pair
  return { name: pair.key, key, id, createRevision, modRevision, lease, value: parsed(pair) }
}

function parsed(pair: KeyValue): TicketValue {
  try {
    const found = JSON.parse(pair.value) as
      | Tombstone
      | Closing
      | (Partial<KeptTicket> & { state?: 'leaving' })
    if (found.state === 'gone' || found.state === 'closing') return found
    const value = found
    if (typeof value.units === 'number') {
      return {
        state: value.state === 'leaving' ? 'leaving' : 'here',
        units: value.units,
        limit: value.limit ?? UNLIMITED,
        ttlMs: Number(value.ttlMs),
        lockDelayMs: value.lockDelayMs ?? 0,
        pinned: value.pinned === true,
        at: Number(value.at),
        owner: String(value.owner),
      }
    }
  } catch {
    // As it is no JSON, it is not of this library.
  }
  throw new StoreError(
    'store-refused',
    `The etcd key ${JSON.stringify(pair.key)} is used by something else. Choose another \`prefix\` for etcdStore().`,
  )
}
