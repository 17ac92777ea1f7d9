import type { AcquireAnswer, ReleaseAnswer, ReleaseRequest, Ticket } from '../../contract/store.ts'
import type { StoreTime } from '../../law/room.ts'
import { isGood, leastLaterUs, type Moment, timeSince } from './fence-clock.ts'
import type { SqliteStatements } from './statements.ts'

/**
 * A ticket takes a free key, and releases it while nobody waits. One statement does this. Otherwise it takes a look at the room, the
 * law, and a statement for each change.
 *
 * The condition of the statement shows that the law would decide the same: the key has no holder besides this ticket, no waiter and
 * no lock-delay, and the ticket has no tombstone. If the condition is false, the statement writes nothing, and the law decides.
 */
export class LoneTicket {
  /**
   * The moment of the fence clock that was read last through these statements. If the file has a later one by now, a ticket takes its key
   * by the law. So the fence is the one that the law would give.
   */
  #last: { readonly statements: SqliteStatements; readonly moment: Moment } | undefined

  /** After a failure the file is opened anew, with other statements: the moment may not be in the file, or in another one. */
  saw(statements: SqliteStatements, moment: Moment): void {
    this.#last = { statements, moment }
  }

  #momentOf(statements: SqliteStatements): Moment | undefined {
    return this.#last?.statements === statements ? this.#last.moment : undefined
  }

  acquire(
    statements: SqliteStatements,
    { ticket, inbox }: { readonly ticket: Ticket; readonly inbox: string },
    time: StoreTime,
  ): AcquireAnswer | undefined {
    const { key, id, units, limit, ttlMs, minHoldMs, lockDelayMs, owner } = ticket
    const moment = this.#momentOf(statements)
    // When the second of a moment is over, the law writes the next one.
    if (moment === undefined || !isGood(moment, time) || units > limit) return undefined
    const { ms, us: fence } = timeSince(moment, time)
    const holdUntil = minHoldMs > 0 ? ms + minHoldMs : 0
    const expiresAt = Math.max(ms + ttlMs, holdUntil)
    const times = [ms, expiresAt, holdUntil, moment.ms, moment.us] as const
    const answer = { tag: 'held', fence: BigInt(fence) } as const
    const taken = statements.takeFree(key, id, units, limit, lockDelayMs, owner, inbox, fence, ...times)
    return taken ? answer : undefined
  }

  release(
    statements: SqliteStatements,
    { key, id, cancel }: ReleaseRequest,
    time: StoreTime,
  ): ReleaseAnswer | undefined {
    const moment = this.#momentOf(statements)
    if (moment === undefined || cancel) return undefined
    // With a later moment, which the file may have by now, this would be the same or higher.
    const left = statements.leaveFree(key, id, time.ms, leastLaterUs(moment, time))
    return left ? { was: 'held' } : undefined
  }
}
