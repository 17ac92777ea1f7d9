import type { Instant } from '../base/clock.ts'
import type { RenewAnswer, Ticket } from '../contract/store.ts'
import type { Exchange } from './instant.ts'
import type { WheelEntry } from './timer-wheel.ts'

/** A member of the renewal loop: a lease, a waiter, a wait in the queue of this process, or a release that is not answered yet. */
export interface Renewable extends WheelEntry<Renewable> {
  readonly kind: 'lease' | 'waiter' | 'local wait' | 'release'
  readonly ticket: Ticket
  /** The ticket to renew with, if it differs from the lease's own. */
  readonly renewRequest?: Ticket
  /** Of a lease: what a renewal has to confirm. */
  readonly fence?: bigint
  /** When it is due next, on the monotonic clock. `Infinity`: only when `askNow` of the loop is called. */
  dueAt: number
  /** How much earlier than `dueAt` it may be asked about, to share a request with others. */
  readonly slackMs: number
  /**
   * Whether a caller awaits it, so that the process must not exit. Work under a lease keeps the process alive by itself.
   * The loop counts when something is scheduled and when it is removed, so the value may change only in between.
   */
  readonly awaited: boolean
  /** It is due. Returns true to have its ticket renewed in the same request as all others that are due. */
  due(at: Instant): boolean
  /** The store's answer about the ticket. */
  answered(answer: RenewAnswer, asked: Ticket, when: Exchange): void
  /** The store gave no answer: the renewal may or may not have happened. */
  unanswered(error: unknown): void
}
