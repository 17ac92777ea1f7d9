import type { Ticket } from '../../src/contract/store.ts'
import type { Holder, TicketWake } from '../../src/law/room.ts'

/** An action of a history. `who` is the place of the ticket in the cast. */
export type Action =
  | { readonly verb: 'acquire'; readonly who: number }
  | { readonly verb: 'renew'; readonly who: number; readonly ttlMs?: number }
  | { readonly verb: 'release'; readonly who: number; readonly cancel: boolean }
  | { readonly verb: 'evict'; readonly who: number | undefined }
  /** Asks whether the room is idle. */
  | { readonly verb: 'idle' }
  | { readonly verb: 'pass'; readonly ms: number }

export interface Part extends Omit<Ticket, 'key' | 'id' | 'owner'> {
  /** Whether messages reach the process of the ticket. Default: false. */
  readonly reached?: boolean
}

/** The state of a room at one moment: a copy, so later steps do not change it. */
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

/** One call, and everything that is known around the call. */
export interface Observation {
  readonly action: Exclude<Action, { verb: 'pass' }>
  readonly ms: number
  /** The ticket that asks; for acquire and renew only. */
  readonly asking: Ticket | undefined
  /** The ids of the tickets that messages reach. */
  readonly reached: ReadonlySet<string>
  readonly answer: unknown
  readonly wakes: readonly TicketWake[]
  readonly before: Moment
  readonly after: Moment
  /** The holders under fences that did not exist before, in order of fences. */
  readonly admitted: readonly Holder[]
  /** The earlier holders whose time is over. */
  readonly expired: readonly Holder[]
  /** The tombstones that the rules know of before this step, by ticket. */
  readonly graves: ReadonlyMap<string, Grave>
  readonly highestFence: number
  /**
   * The answer to the same call a moment ago. Undefined if there was no such call, or if the call has changed the room.
   */
  readonly repeated: { readonly answer: unknown } | undefined
  /** Whether the step changed anything that matters later. */
  readonly changed: boolean
}

export const REASON = 'on purpose'
