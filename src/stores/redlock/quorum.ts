import { milliseconds } from '../../base/diagnosis.ts'
import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { Tally } from './poll.ts'
import type { Proposals } from './proposals.ts'
import type { RedlockServer } from './redlock-server.ts'
import { has, withServer } from './server-set.ts'
import type { TicketRecord, Tickets } from './tickets.ts'

/**
 * The servers of which a majority decides, and what all verbs share. The protocol has four rules, and each file of this folder
 * implements a part of one of them. docs/redlock.md says what they promise to a user, and what they assume of clocks.
 *
 * 1. **Votes.** A ticket asks every server for its *vote*. A server gives it by letting the ticket hold in a room of its own, by
 *    the same law and the same expiry as a single Redis server. A *quorum* is more than half of the servers. A ticket holds the key
 *    if a quorum votes for it. Two quorums share a server, and no server votes at the same time for two tickets that exclude each
 *    other. After a restart, a flush, a promotion, or a step back of its clock a server may have lost votes. It is *forgetful* then: for
 *    `maxTtl` its votes count for no new holder. (acquire.ts, renew.ts, server-identity.ts, lua/identity.lua)
 * 2. **Validity.** A grant counts from the moment before its request was written, for the ttl less an allowance for clocks. Until
 *    then the votes of that quorum stand, so no other ticket can have one. Each acquire and each renewal is a *round* of its own,
 *    with a validity of its own. (tickets.ts)
 * 3. **Fences.** Each vote has a fence. A ticket *proposes* a fence when it asks for votes. If a quorum votes with that fence, it is
 *    the fence of the lease. Otherwise the ticket *claims* a fence of its votes on a quorum, with a second request: the largest,
 *    or a lower one if the clocks do not agree.
 *    (proposals.ts, fencing.ts, lua/claim.lua, lua/parts/proposal.lua)
 * 4. **Votes that are given back.** A vote outside of a quorum is in the way of other tickets. If the votes are split, all tickets but
 *    one give theirs back and wait. A ticket that is refused, lost or released gives back all its votes. A server that cannot
 *    be reached, or whose answer was lost, gets the release later, and leaves a tombstone: the acquire may arrive after it.
 *    (contention.ts, pending-releases.ts, lua/withdraw.lua)
 */
export interface Quorum {
  readonly servers: readonly RedlockServer[]
  /** How many servers make a quorum: more than half of them. */
  readonly majority: number
  readonly maxTtlMs: number
  readonly fences: boolean
  readonly tickets: Tickets
  readonly proposals: Proposals
  /** Tells a person that no key can be granted for a while. Once, as each request is told, too. */
  warn(message: string): void
  /** Tells the engine that asking about this ticket again is worth it. */
  wake(id: string): void
}

/**
 * Runs the rounds of a ticket that does not hold yet one after another. A round may claim a fence or give votes back.
 * If two rounds ran at once, one could give back the votes that the other counts, or agree on another fence with other
 * servers.
 */
export function inTurn<T>(
  quorum: Quorum,
  { id }: Ticket,
  record: TicketRecord,
  play: () => Promise<T>,
): Promise<T> {
  const before = record.lastRound
  const round = before === undefined ? play() : before.then(play, play)
  record.lastRound = round
  const done = (): void => {
    if (record.lastRound !== round) return
    record.lastRound = undefined
    const { hasMissedRenewal } = record
    record.hasMissedRenewal = false
    if (hasMissedRenewal && !record.isOver && record.fence === undefined) quorum.wake(id)
  }
  round.then(done, done)
  return round
}

/** Takes a ticket out of the room of a server, whether it has its vote or waits: now, or once the server can be reached. */
export function withdraw(server: RedlockServer, ticket: Ticket): void {
  const { key, id, minHoldMs, ttlMs } = ticket
  server.ask<unknown>(
    () =>
      minHoldMs > 0 ? server.scripts.withdraw(ticket) : server.rooms.release({ key, id, cancel: false }),
    {
      answered: () => {},
      failed: () => server.releaseLater({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs)),
    },
  )
}

/** Tells a server the fence that a quorum has agreed on, so that every quorum knows it. Once, if its time is too far behind. */
export function propagateFence(server: RedlockServer, ticket: Ticket, record: TicketRecord): void {
  const { fence } = record
  if (record.isOver || fence === undefined || fence === NO_FENCE || has(record.farBehind, server)) return
  server.ask(() => server.claim(ticket, { fence, mode: 'propagate' }), {
    answered: ({ tag }) => {
      if (tag === 'too-far') record.farBehind = withServer(record.farBehind, server)
    },
    failed: () => {},
  })
}

/** The fence of every lease with the option `fences: false`. Lower than every real fence. */
export const NO_FENCE = 0n

/** Too few servers answered. If so many refused that no quorum is left, asking again is in vain. Everything else may pass. */
export function tooFewError(quorum: Quorum, { errors }: Tally<unknown>, key?: string): StoreError {
  const { servers, majority } = quorum
  const refusals = errors.filter((error) => error instanceof StoreError && error.code === 'store-refused')
  if (servers.length - refusals.length < majority && refusals[0] instanceof StoreError) {
    return new StoreError('store-refused', refusals[0].message, { key, cause: refusals[0] })
  }
  const [cause] = errors
  const why =
    cause instanceof StoreError
      ? `Of one of them: ${cause.message}`
      : 'Check that they run and can be reached.'
  return new StoreError(
    'store-unavailable',
    `Fewer than ${majority} of the ${servers.length} Redis servers answered. ${why}`,
    { key, cause },
  )
}

/** The votes of too few servers count, so no ticket can have a quorum yet. */
export function forgetfulError(quorum: Quorum, key: string): StoreError {
  const { servers, majority } = quorum
  const waits = servers.map((server) => server.forgetfulMs).sort((one, other) => one - other)
  const leftMs = Math.ceil(waits[majority - 1] ?? 0)
  // Some of them are forgetful, and the key is taken on others. Or one was flushed between its vote and the claim.
  if (leftMs <= 0) return new StoreError('store-unavailable', SOME_FORGETFUL, { key })
  const forgetful = servers.filter(({ identity, votesCount }) => identity !== undefined && !votesCount).length
  const message = `The votes of ${forgetful} of the ${servers.length} Redis servers do not count yet, and ${majority} have to. These servers are new, have lost their data, had their clocks set back, or are promoted replicas, so they may have forgotten a holder. Their votes count in ${milliseconds(leftMs)}, when \`maxTtl\` is over. ${ADVICE}`
  quorum.warn(message)
  return new StoreError('store-unavailable', message, {
    key,
    retryAfterMs: Math.max(SHORTEST_RETRY_MS, leftMs),
  })
}

const SOME_FORGETFUL =
  'Some of the Redis servers are new, have lost their data, had their clocks set back, or were promoted from replicas, less than `maxTtl` ago. Their votes are needed for this key, and do not count yet. Try again.'

const ADVICE =
  'To spare new servers this wait, call initRedlock() of holdfast/redlock, or `holdfast init`, before any other process uses them.'
/** The clocks of a server and of this process do not agree to the millisecond on the end of `maxTtl`. */
const SHORTEST_RETRY_MS = 10
