import { shortened } from '../../../base/text.ts'
import { type Ticket, UNLIMITED } from '../../../contract/store.ts'
import { StoreError } from '../../../errors.ts'
import type { KeyValue } from '../grpc/messages.ts'
import type { KeyNames } from './key-names.ts'

/** A key in the range of a room, as it was at some revision. */
export interface RoomEntry {
  readonly name: string
  readonly key: string
  readonly id: string
  readonly createRevision: number
  readonly modRevision: number
  readonly lease: number
  readonly value: EntryValue
}

export type TicketEntry = RoomEntry & { readonly value: TicketValue }

/**
 * The value of such a key, as JSON. Whether a ticket holds or waits is not written down: it follows from the tickets that came
 * before it and are still there.
 */
export type EntryValue = TicketValue | TombstoneValue | LockDelayValue

export interface TicketValue {
  /** `leaving`: released before its minimum hold was over. */
  readonly state: 'here' | 'leaving'
  readonly units: number
  readonly limit: number
  readonly ttlMs: number
  readonly lockDelayMs: number
  /** The key is bound to a lease of its own, which lasts for the minimum hold. In JSON: `pinned`. */
  readonly isForMinHold: boolean
  /** When it came, by the wall clock of its process: for people only. */
  readonly at: number
  readonly owner: string
}

export interface TombstoneValue {
  readonly state: 'gone'
  readonly evicted: boolean
  readonly reason: string
}

export interface LockDelayValue {
  readonly state: 'closing'
  readonly ms: number
}

/** What etcd keeps of a ticket. */
export function ticketValue(
  { units, limit, ttlMs, lockDelayMs, owner }: Ticket,
  {
    at,
    state = 'here',
    isForMinHold = false,
  }: { at: number; state?: 'here' | 'leaving'; isForMinHold?: boolean },
): TicketValue {
  return { state, units, limit, ttlMs, lockDelayMs, isForMinHold, at, owner }
}

/** Its JSON, without what most tickets have in common. */
export function ticketText({
  state,
  units,
  limit,
  ttlMs,
  lockDelayMs,
  isForMinHold,
  at,
  owner,
}: TicketValue): string {
  const usual = `{"units":${units},"ttlMs":${ttlMs},"at":${at},"owner":${JSON.stringify(owner)}`
  const limited = limit === UNLIMITED ? '' : `,"limit":${limit}`
  const delayed = lockDelayMs === 0 ? '' : `,"lockDelayMs":${lockDelayMs}`
  return `${usual}${limited}${delayed}${isForMinHold ? ',"pinned":true' : ''}${state === 'leaving' ? ',"state":"leaving"' : ''}}`
}

export function tombstoneText(tombstone: { evicted: boolean; reason?: string }): string {
  return JSON.stringify({ state: 'gone', ...tombstone })
}

export function lockDelayText(ms: number): string {
  return JSON.stringify({ state: 'closing', ms })
}

/** @throws {StoreError} when another program writes under the same prefix. */
export function entryOf(pair: KeyValue, names: KeyNames): RoomEntry {
  const { key, id } = names.parse(pair.key)
  const { createRevision, modRevision, lease } = pair
  return { name: pair.key, key, id, createRevision, modRevision, lease, value: parsed(pair, key) }
}

function parsed(pair: KeyValue, key: string): EntryValue {
  try {
    const found = JSON.parse(pair.value) as
      | TombstoneValue
      | LockDelayValue
      | (Partial<TicketValue> & { state?: 'leaving'; pinned?: boolean })
    if (found.state === 'gone' || found.state === 'closing') return found
    const value = found
    if (typeof value.units === 'number') {
      return {
        state: value.state === 'leaving' ? 'leaving' : 'here',
        units: value.units,
        limit: value.limit ?? UNLIMITED,
        ttlMs: Number(value.ttlMs),
        lockDelayMs: value.lockDelayMs ?? 0,
        isForMinHold: value.pinned === true,
        at: Number(value.at),
        owner: String(value.owner),
      }
    }
  } catch {
    // It is no JSON, so another program has written it.
  }
  throw new StoreError(
    'store-refused',
    `The etcd key ${JSON.stringify(shortened(pair.key, LONGEST_NAME))} is used by something else. Choose another \`prefix\` for etcdStore().`,
    { key },
  )
}

/** Another program may write names of any length. */
const LONGEST_NAME = 300
