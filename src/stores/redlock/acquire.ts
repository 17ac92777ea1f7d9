import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { now, paused, systemClock } from '../../base/clock.ts'
import type { AcquireAnswer, Gone, Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { claimFence, type Vote, votesLostError } from './fencing.ts'
import { poll, type Tally } from './poll.ts'
import type { Proposal } from './proposals.ts'
import { forgetfulError, inTurn, NO_FENCE, type Quorum, tooFewError, withdraw } from './quorum.ts'
import type { RedlockServer } from './redlock-server.ts'
import { has, NO_SERVERS, type ServerSet, withServer } from './server-set.ts'
import { grant, isInTime, type TicketRecord } from './tickets.ts'

/** The servers' decision in one round. */
type Decision =
  /** A quorum votes for the ticket. */
  | { readonly tag: 'elected'; readonly votes: readonly Vote[] }
  /** No quorum votes for it: another ticket has one, or the votes are split. */
  | { readonly tag: 'contended'; readonly tally: Tally<AcquireAnswer> }
  | Gone

/**
 * Acquires on a quorum, by the rules in quorum.ts: asks every server for its vote with a proposed fence, claims a fence if none
 * was agreed, and otherwise waits, gives way or asks again in another round.
 */
export function acquire(quorum: Quorum, ticket: Ticket): Promise<AcquireAnswer> {
  const record = quorum.tickets.of(ticket)
  return inTurn(quorum, ticket, record, () => acquireNow(quorum, ticket, record))
}

async function acquireNow(quorum: Quorum, ticket: Ticket, record: TicketRecord): Promise<AcquireAnswer> {
  for (let attempt = 1; ; attempt += 1) {
    const round = new AcquireRound(quorum, ticket, record)
    const answer = await round.play(attempt)
    if (answer !== undefined) return answer
    // The votes were split, or lost before the claim. During this pause the other tickets should give way.
    await paused(systemClock, backoffMs(BETWEEN_ROUNDS, attempt))
    // The ticket was released meanwhile. Another round would let it in once more.
    if (record.isOver) return { tag: 'busy', retryMs: 1 }
  }
}

/** `MOST_ROUNDS` ends it before the longest pause. */
const BETWEEN_ROUNDS: Backoff = { firstMs: 4, longestMs: 1000, jitter: 0.5 }

/** One acquire on all servers, with the answers that come after the decision. */
class AcquireRound {
  readonly #quorum: Quorum
  readonly #ticket: Ticket
  readonly #record: TicketRecord
  #sentTo: ServerSet = NO_SERVERS
  #unansweredBy: ServerSet = NO_SERVERS
  /** Servers that have voted for the ticket after the first poll was decided, and before the outcome. */
  #lateVotes: ServerSet = NO_SERVERS
  #outcome: 'open' | 'held' | 'queued' | 'refused' = 'open'
  readonly #proposal: Proposal | undefined

  constructor(quorum: Quorum, ticket: Ticket, record: TicketRecord) {
    this.#quorum = quorum
    this.#ticket = ticket
    this.#record = record
    // With a minimum hold a claim is needed anyway: the hold begins with it.
    if (ticket.minHoldMs === 0) this.#proposal = quorum.fences ? quorum.proposals.next() : 'unfenced'
  }

  /** Undefined: the ticket should play another round, as no ticket has a quorum, or its votes were lost before the claim. */
  async play(attempt: number): Promise<AcquireAnswer | undefined> {
    const { tickets, servers } = this.#quorum
    const [ticket, record] = [this.#ticket, this.#record]
    const askedAt = now(systemClock)
    const decision = await poll(servers, (server) => this.#ask(server), {
      decide: (tally: Tally<AcquireAnswer>) => decide(this.#quorum, ticket.key, tally),
      late: (server, answer) => this.#late(server, answer),
      failed: (server) => this.#failed(server),
    })
    switch (decision.tag) {
      case 'gone':
        this.#outcome = 'refused'
        tickets.end(ticket.id)
        for (const server of servers) withdraw(server, ticket)
        return decision
      case 'elected': {
        const fence =
          knownFence(record, decision.votes) ??
          (await claimFence(this.#quorum, {
            ticket,
            record,
            votes: decision.votes,
            proposal: this.#proposal,
            asksAgain: attempt <= PUT_OFF_ROUNDS,
          }))
        if (fence === undefined) {
          if (attempt < MOST_ROUNDS) return undefined
          throw votesLostError(ticket.key)
        }
        this.#outcome = 'held'
        record.fence = fence
        record.splitVotes = 0
        grant(record, askedAt, ticket.ttlMs)
        return { tag: 'held', fence }
      }
      case 'contended': {
        const answer = await contend(this.#quorum, ticket, record, decision.tally)
        if (answer === undefined && ticket.patienceMs === 0 && attempt < MOST_ROUNDS) return undefined
        if (answer?.tag === 'queued') {
          this.#outcome = 'queued'
          return answer
        }
        this.#outcome = 'refused'
        this.#leave(decision.tally)
        return answer ?? { tag: 'busy', retryMs: 1 }
      }
      default:
        return decision satisfies never
    }
  }

  #ask(server: RedlockServer): AcquireAnswer | Promise<AcquireAnswer> {
    this.#sentTo = withServer(this.#sentTo, server)
    this.#record.acquireSentTo = withServer(this.#record.acquireSentTo, server)
    return server.requestVote(this.#ticket, this.#proposal)
  }

  #late(server: RedlockServer, answer: AcquireAnswer): void {
    // The release of the ticket was sent after this request, or is pending, and ends the vote.
    if (this.#record.isOver && this.#outcome !== 'refused') return
    if (answer.tag !== 'held') return
    if (this.#outcome === 'open') this.#lateVotes = withServer(this.#lateVotes, server)
    if (this.#outcome === 'refused') withdraw(server, this.#ticket)
    // If the ticket holds by now, its next renewal tells this server the fence.
    else if (this.#outcome === 'queued') {
      this.#record.waitsForAll = true
      this.#quorum.wake(this.#ticket.id)
    }
  }

  #failed(server: RedlockServer): void {
    if (has(this.#sentTo, server)) {
      this.#unansweredBy = withServer(this.#unansweredBy, server)
      this.#record.unansweredBy = withServer(this.#record.unansweredBy, server)
    }
    if (this.#outcome === 'refused' || this.#record.isOver) this.#cancel(server)
  }

  /** Gives back all votes of a ticket that does not wait. */
  #leave(tally: Tally<AcquireAnswer>): void {
    this.#quorum.tickets.end(this.#ticket.id)
    for (const server of this.#quorum.servers) {
      if (tally.answers[server.index]?.tag === 'held' || has(this.#lateVotes, server))
        withdraw(server, this.#ticket)
      else this.#cancel(server)
    }
  }

  /** A server that did not answer may have given its vote, or may give it later. */
  #cancel(server: RedlockServer): void {
    if (!has(this.#unansweredBy, server)) return
    const { key, id, ttlMs, minHoldMs } = this.#ticket
    server.releaseLater({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs))
  }
}

/**
 * The fence of a ticket that holds already: an acquire that is sent again must get the same fence, also after the wall clock was
 * set forward. Undefined if that lease is over: its validity has ended, or no server knows its fence any more, as after a
 * suspend.
 */
function knownFence(record: TicketRecord, votes: readonly Vote[]): bigint | undefined {
  const { fence } = record
  if (fence === undefined || !isInTime(record)) return undefined
  return fence === NO_FENCE || votes.some((vote) => vote.fence === fence) ? fence : undefined
}

function decide(quorum: Quorum, key: string, tally: Tally<AcquireAnswer>): Decision | undefined {
  const { servers, majority } = quorum
  const votes: Vote[] = []
  let forgetful = 0
  let forgetfulServers = 0
  let answered = 0
  let eviction: Gone | undefined
  for (const [index, answer] of tally.answers.entries()) {
    if (answer === undefined) continue
    if (answer.tag === 'gone') {
      if (!answer.evicted) return answer
      eviction = answer
      continue
    }
    answered += 1
    const server = servers[index]
    const counts = server?.votesCount === true
    if (!counts && answer.tag !== 'busy') forgetfulServers += 1
    if (answer.tag !== 'held') continue
    if (counts) votes.push({ server, fence: answer.fence })
    else forgetful += 1
  }
  if (votes.length >= majority) return { tag: 'elected', votes }
  if (votes.length + tally.pending >= majority) return undefined
  if (eviction !== undefined) return eviction
  if (answered < majority) {
    if (answered + tally.pending >= majority) return undefined
    throw tooFewError(quorum, tally, key)
  }
  if (votes.length + forgetful >= majority) throw forgetfulError(quorum, key)
  // In the queue of such a server may be no more than another new ticket, which cannot hold yet either.
  if (servers.length - forgetfulServers < majority) throw forgetfulError(quorum, key)
  return { tag: 'contended', tally }
}

/** After so many rounds without a quorum for any ticket, one with patience 0 gets `busy` although nobody has the key. */
const MOST_ROUNDS = 6
/**
 * In so many rounds the ticket puts off a fence that is far ahead, as on a clock that is off. Then it claims that fence, because the other
 * servers may stay taken.
 */
const PUT_OFF_ROUNDS = 3
