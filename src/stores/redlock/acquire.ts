import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { now, paused, systemClock } from '../../base/clock.ts'
import type { AcquireAnswer, Gone, Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { claimFence, type FencedVote, votesLostError } from './fencing.ts'
import type { RedlockNode } from './node.ts'
import { poll, type Tally } from './poll.ts'
import { forgetfulError, inTurn, NO_FENCE, type Quorum, tooFewError, withdraw } from './quorum.ts'
import { grant, isInTime, type TicketState } from './tickets.ts'

/** What the servers have decided about one acquire. */
type Decision =
  | { readonly tag: 'elected'; readonly votes: readonly FencedVote[] }
  | { readonly tag: 'contended'; readonly tally: Tally<AcquireAnswer> }
  | Gone

/** Acquires on a quorum. The validity of a grant counts from the request of its own round. */
export function acquire(quorum: Quorum, ticket: Ticket): Promise<AcquireAnswer> {
  const state = quorum.tickets.of(ticket)
  return inTurn(quorum, ticket, state, () => acquireNow(quorum, ticket, state))
}

async function acquireNow(quorum: Quorum, ticket: Ticket, state: TicketState): Promise<AcquireAnswer> {
  for (let attempt = 1; ; attempt += 1) {
    const round = new AcquireRound(quorum, ticket, state)
    const answer = await round.play(attempt)
    if (answer !== undefined) return answer
    // Several asked at once and none had a quorum, or votes were lost. After this pause the others should have given way.
    await paused(systemClock, backoffMs(STEPPING_BACK, attempt))
    // The ticket was released meanwhile: asking again would let it in once more.
    if (state.over) return { tag: 'busy', retryMs: 1 }
  }
}

/** `MOST_ROUNDS` ends it before the longest pause. */
const STEPPING_BACK: Backoff = { firstMs: 4, longestMs: 1000, jitter: 0.5 }

/** One acquire on all servers, including the answers that come after the decision. */
class AcquireRound {
  readonly #quorum: Quorum
  readonly #ticket: Ticket
  readonly #state: TicketState
  /** One bit for each server: where this acquire was sent, and where its answer was lost. */
  #sent = 0
  #lost = 0
  #outcome: 'open' | 'held' | 'queued' | 'refused' = 'open'
  readonly #proposal: number | undefined

  constructor(quorum: Quorum, ticket: Ticket, state: TicketState) {
    this.#quorum = quorum
    this.#ticket = ticket
    this.#state = state
    // A minimum hold begins with the claim.
    this.#proposal = quorum.fences && ticket.minHoldMs === 0 ? quorum.proposals.next() : undefined
  }

  /** Undefined: nobody had a quorum, or not for long enough, and this ticket should ask again. */
  async play(attempt: number): Promise<AcquireAnswer | undefined> {
    const { tickets, nodes } = this.#quorum
    const [ticket, state] = [this.#ticket, this.#state]
    const askedAt = now(systemClock)
    const decision = await poll(nodes, (node) => this.#ask(node), {
      decide: (tally: Tally<AcquireAnswer>) => decide(this.#quorum, ticket.key, tally),
      late: (node, answer) => this.#late(node, answer),
      failed: (node) => this.#failed(node),
    })
    switch (decision.tag) {
      case 'gone':
        this.#outcome = 'refused'
        tickets.end(ticket.id)
        for (const node of nodes) withdraw(node, ticket)
        return decision
      case 'elected': {
        const fence =
          knownFence(state, decision.votes) ??
          (await claimFence(this.#quorum, ticket, state, decision.votes, this.#proposal))
        if (fence === undefined) {
          if (attempt < MOST_ROUNDS) return undefined
          throw votesLostError(ticket.key)
        }
        this.#outcome = 'held'
        state.fence = fence
        state.splits = 0
        grant(state, askedAt, ticket.ttlMs)
        return { tag: 'held', fence }
      }
      case 'contended': {
        const answer = await contend(this.#quorum, ticket, state, decision.tally)
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

  #ask(node: RedlockNode): AcquireAnswer | Promise<AcquireAnswer> {
    this.#sent |= 1 << node.index
    this.#state.asked |= this.#sent
    return node.vote(this.#ticket, this.#proposal)
  }

  #late(node: RedlockNode, answer: AcquireAnswer): void {
    // The release was sent after this request, or is pending.
    if (this.#state.over && this.#outcome !== 'refused') return
    if (answer.tag !== 'held') return
    if (this.#outcome === 'refused') withdraw(node, this.#ticket)
    // The next renewal of a holder tells this server the fence.
    else if (this.#outcome === 'queued') {
      this.#state.waitsForAll = true
      this.#quorum.wake(this.#ticket.id)
    }
  }

  #failed(node: RedlockNode): void {
    this.#lost |= this.#sent & (1 << node.index)
    this.#state.doubtful |= this.#lost
    if (this.#outcome === 'refused' || this.#state.over) this.#cancel(node)
  }

  /** With patience 0 nothing is left behind. */
  #leave(tally: Tally<AcquireAnswer>): void {
    this.#quorum.tickets.end(this.#ticket.id)
    for (const node of this.#quorum.nodes) {
      if (tally.answers[node.index]?.tag === 'held') withdraw(node, this.#ticket)
      else this.#cancel(node)
    }
  }

  /** Where the answer was lost, the ticket may have a vote now or later. */
  #cancel(node: RedlockNode): void {
    const { key, id, ttlMs, minHoldMs } = this.#ticket
    if ((this.#lost & (1 << node.index)) !== 0) {
      node.releaseLater({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs))
    }
  }
}

/**
 * The fence of a ticket that already holds, if it is still that lease: in its time, and known to one of these servers. An acquire that
 * is sent again has to answer the same fence, also after the wall clock was set forward. After a suspend no server knows the fence.
 */
function knownFence(state: TicketState, votes: readonly FencedVote[]): bigint | undefined {
  const { fence } = state
  if (fence === undefined || !isInTime(state)) return undefined
  return fence === NO_FENCE || votes.some((vote) => vote.fence === fence) ? fence : undefined
}

function decide(quorum: Quorum, key: string, tally: Tally<AcquireAnswer>): Decision | undefined {
  const { nodes, majority } = quorum
  const votes: FencedVote[] = []
  let forgetful = 0
  let answered = 0
  for (const [index, answer] of tally.answers.entries()) {
    if (answer === undefined) continue
    if (answer.tag === 'gone') return answer
    answered += 1
    if (answer.tag !== 'held') continue
    const node = nodes[index]
    if (node?.counts === true) votes.push({ node, fence: answer.fence })
    else forgetful += 1
  }
  if (votes.length >= majority) return { tag: 'elected', votes }
  if (votes.length + tally.pending >= majority) return undefined
  if (answered < majority) {
    if (answered + tally.pending >= majority) return undefined
    throw tooFewError(quorum, tally, key)
  }
  if (votes.length + forgetful >= majority) throw forgetfulError(quorum, key)
  return { tag: 'contended', tally }
}

/** With patience 0: after so many rounds without a winner the answer is busy, although nobody has the key. */
const MOST_ROUNDS = 6
