import type { Ticket } from '../../src/contract/store.ts'
import type { Holder, TicketWake } from '../../src/law/room.ts'

/** A ticket is named by its place in the cast. */
export type Action =
  | { readonly verb: 'acquire'; readonly who: number }
  | { readonly verb: 'renew'; readonly who: number; readonly ttlMs?: number }
  | { readonly verb: 'release'; readonly who: number; readonly cancel: boolean }
  | { readonly verb: 'evict'; readonly who: number | undefined }
  /** Asks whether the room is idle. */
  | { readonly verb: 'idle' }
  | { readonly verb: 'pass'; readonly ms: number }

export interface Part extends Omit<Ticket, 'key' | 'id' | 'owner'> {
  /** Whether messages reach its process. Default: false. */
  readonly reached?: boolean
}

/** What a room was at one moment, out of reach of later steps. */
export interface Moment {
  readonly holders: ReadonlyMap<string, Holder>
  readonly queue: ReadonlyMap<string, WaiterThen>
  readonly closedUntil: number
  readonly nextExpiry: number
}

export interface WaiterThen {
  readonly ticket: Ticket
  readonly heardAt: number
  readonly rememberedUntil: number
}

export interface Grave {
  readonly until: number
  readonly evicted: boolean
}

/** One call and everything that is known around it. */
export interface Observation {
  readonly action: Exclude<Action, { verb: 'pass' }>
  readonly ms: number
  /** The ticket that asks, for acquire and renew. */
  readonly asking: Ticket | undefined
  /** Whom messages reach. */
  readonly reached: ReadonlySet<string>
  readonly answer: unknown
  readonly wakes: readonly TicketWake[]
  readonly before: Moment
  readonly after: Moment
  /** Who holds under a fence that was not there before, in order of fences. */
  readonly admitted: readonly Holder[]
  /** Who held before and whose time is over. */
  readonly expired: readonly Holder[]
  /** Whom the rules have seen buried before this step. */
  readonly graves: ReadonlyMap<string, Grave>
  readonly highestFence: number
  /** The answer to the same call a moment ago, if there was one and it left the room as it was before this step. */
  readonly repeated: { readonly answer: unknown } | undefined
  /** Whether the step changed anything that matters later. */
  readonly changed: boolean
}

export const REASON = 'on purpose'
