import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { FenceBounds } from './fence-bounds.ts'
import { poll, type Tally } from './poll.ts'
import type { Proposal } from './proposals.ts'
import { forgetfulError, NO_FENCE, type Quorum, tooFewError } from './quorum.ts'
import type { RedlockServer } from './redlock-server.ts'
import type { ClaimAnswer } from './server-scripts.ts'
import { isOurs, type TicketRecord } from './tickets.ts'

/**
 * Rule 3 in quorum.ts: finds the fence of a ticket that has the votes of a quorum, each with a fence of its server.
 *
 * - If a quorum voted with the proposed fence, it is agreed. Each of these servers gave it above all its earlier fences, and gives
 *   only larger ones afterwards.
 * - Otherwise the ticket claims the largest of these fences on a quorum; if they are far apart, about the lowest one that a quorum can
 *   accept. A server accepts a claim only while the ticket has its vote, and only above all earlier claims for this key.
 *
 * Any two quorums share a server, so two tickets never get the same fence. That server also raises its last fence to the claimed
 * one, so a ticket that begins after another has finished gets a larger fence. A server that lost its data begins with the
 * time in µs. Its votes do not count for `maxTtl`, and it accepts no fence that is so far ahead of its time. So by then its time is
 * larger than every fence that it has accepted.
 *
 * If the clocks of some servers are further apart than that, these servers do not agree on a fence, and a quorum of others has to.
 *
 * `undefined`: a vote was lost before the claim, for instance because its server went away. The ticket should ask again.
 */
export async function claimFence(
  quorum: Quorum,
  { ticket, record, votes, proposal, asksAgain }: VotedTicket,
): Promise<bigint | undefined> {
  const agreed = quorum.fences ? agreedFence(votes, quorum.majority) : undefined
  // Fences that are equal and not the proposed one are a coincidence: these servers had the same last fence. They have not
  // checked whether they may have lost a holder. A ticket of another process has that fence already.
  if (agreed !== undefined && (!isOurs(record) || Number(agreed) === proposal)) return agreed
  if (!quorum.fences && ticket.minHoldMs === 0) return NO_FENCE
  const bounds = new FenceBounds(quorum)
  for (const vote of votes) bounds.gave(vote.server, quorum.fences ? vote.fence : NO_FENCE)
  let fence = bounds.next() ?? NO_FENCE
  // First only the servers whose votes are known, as they accept the claim at once. The others are asked if that fails.
  // A server that is away is asked, too, so that an error can name it.
  const isWhole = !quorum.servers.some((server) => server.isFaulty)
  let servers = isWhole && bounds.isKnown(fence) ? votes.map((vote) => vote.server) : quorum.servers
  for (let attempt = 1; attempt <= MOST_CLAIMS; attempt += 1) {
    const refused = await claim(quorum, ticket, { fence, servers, bounds })
    if (refused === undefined) return fence
    const next = record.isOver ? undefined : bounds.next()
    if (next === undefined) return lost(quorum, refused, { bounds, key: ticket.key })
    // A server that does not let the ticket in yet may do so in the next round, and its clock may be right.
    if (asksAgain && bounds.isFar(fence, next) && hasGone(refused)) return undefined
    // A server has one last fence for all keys. If many readers of many keys claim at once, only a larger step gets ahead of
    // them.
    fence = next > fence ? next + randomBelow(2 ** Math.min(2 * attempt, 20)) : next
    servers = quorum.servers
  }
  throw new StoreError(
    'store-unavailable',
    `Other tickets claimed higher fences ${MOST_CLAIMS} times in a row before this ticket could claim its own. Try again.`,
    { key: ticket.key },
  )
}

/** A ticket that has the votes of a quorum. */
export interface VotedTicket {
  readonly ticket: Ticket
  readonly record: TicketRecord
  readonly votes: readonly Vote[]
  /** The fence that the servers were asked to give, if there was one. */
  readonly proposal?: Proposal | undefined
  /** The ticket asks again at once if there is no fence, so it may put off a fence that is far ahead. */
  readonly asksAgain: boolean
}

/** The vote of one server, and the fence that it gave the ticket. */
export interface Vote {
  readonly server: RedlockServer
  readonly fence: bigint
}

/** The fence that a quorum of these votes has in common. */
export function agreedFence(votes: readonly Vote[], majority: number): bigint | undefined {
  for (const [index, { fence }] of votes.entries()) {
    if (index + majority > votes.length) return undefined
    if (votes.filter((other) => other.fence === fence).length >= majority) return fence
  }
  return undefined
}

interface FenceClaim {
  readonly fence: bigint
  readonly servers: readonly RedlockServer[]
  /** Learn from the answers. */
  readonly bounds: FenceBounds
}

/** Undefined: a quorum has accepted the fence. Otherwise the answers, of which too few accept it. */
function claim(
  { majority, proposals, fences }: Quorum,
  ticket: Ticket,
  { fence, servers, bounds }: FenceClaim,
): Promise<Tally<ClaimAnswer> | undefined> {
  const askedAt = performance.now()
  const asked = { fence: fences ? fence : undefined, mode: 'claim' } as const
  return poll(servers, (server) => server.claim(ticket, asked), {
    failed: (server) => bounds.told(server, fence, undefined),
    decide: (tally: Tally<ClaimAnswer>) => {
      const accepted = tally.answers.flatMap((answer) =>
        answer?.tag === 'accepted' ? [answer.serverUs] : [],
      )
      if (accepted.length >= majority) {
        proposals.learn(Math.max(...accepted), askedAt)
        return { outcome: undefined }
      }
      if (accepted.length + tally.pending >= majority) return undefined
      for (const server of servers) {
        const answer = tally.answers[server.index]
        if (answer !== undefined) bounds.told(server, fence, answer)
      }
      return { outcome: { ...tally, answers: [...tally.answers] } }
    },
  }).then(({ outcome }) => outcome)
}

/** No quorum accepts any fence. */
function lost(
  quorum: Quorum,
  tally: Tally<ClaimAnswer>,
  { bounds, key }: { readonly bounds: FenceBounds; readonly key: string },
): undefined {
  const answers = tally.answers.filter((answer) => answer !== undefined)
  if (answers.some(({ tag }) => tag === 'forgetful')) throw forgetfulError(quorum, key)
  if (bounds.areApart && !hasGone(tally)) throw clocksApartError(tally, key)
  if (answers.length < quorum.majority) throw tooFewError(quorum, tally, key)
}

export function votesLostError(key: string): StoreError {
  return new StoreError(
    'store-unavailable',
    'The ticket lost votes before it had its fence: a server restarted, was flushed, or lost its connection. Try again.',
    { key },
  )
}

/** A server that does not answer is a part of the cause: with it the others might agree. */
function clocksApartError({ errors: [cause] }: Tally<ClaimAnswer>, key: string): StoreError {
  const message =
    cause instanceof StoreError
      ? `${CLOCKS_APART} One more server is missing: ${cause.message}`
      : CLOCKS_APART
  return new StoreError('store-unavailable', message, { key, cause })
}

function hasGone({ answers }: Tally<ClaimAnswer>): boolean {
  return answers.some((answer) => answer?.tag === 'gone')
}

function randomBelow(limit: number): bigint {
  return BigInt(Math.floor(Math.random() * limit))
}

const MOST_CLAIMS = 12

const CLOCKS_APART =
  'Too few of the Redis servers agree on a fence, because the clocks of some of them are `maxTtl` or more apart, or the last fence of one is ahead, because its clock was set back. `holdfast doctor` shows by how much the clocks differ. Set them. If they agree, wait, or replace that server by an empty one.'
