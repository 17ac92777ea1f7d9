import { type Backoff, backoffMs } from '../../base/backoff.ts'
import { paused, systemClock } from '../../base/clock.ts'
import { usableMs } from '../../base/validity.ts'
import type { AcquireAnswer, Gone, Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { claimFence, type Vote, votesLostError } from './fencing.ts'
import type { RedlockNode } from './node.ts'
import { poll, type Tally } from './poll.ts'
import { type Council, forgetfulError, inTurn, NO_FENCE, tooFewError, withdraw } from './quorum.ts'
import type { TicketState } from './tickets.ts'

/** What the servers have decided about one acquire. */
type Decision =
  | { readonly tag: 'elected'; readonly votes: readonly Vote[] }
  | { readonly tag: 'contended'; readonly tally: Tally<AcquireAnswer> }
  | Gone

/** Asks for a key. Each request's deadline counts from when it was made itself. */
export function ask(council: Council, ticket: Ticket): Promise<AcquireAnswer> {
  const state = council.tickets.of(ticket)
  return inTurn(council, ticket, state, () => askNow(council, ticket, state))
}

async function askNow(council: Council, ticket: Ticket, state: TicketState): Promise<AcquireAnswer> {
  for (let attempt = 1; ; attempt += 1) {
    const round = new AskingRound(council, ticket, state)
    const answer = await round.play(attempt)
    if (answer !== undefined) return answer
    // Nobody had the key, and everybody else should have stepped back by then; or votes were lost on the way.
    await paused(systemClock, backoffMs(STEPPING_BACK, attempt))
    // Released meanwhile: asking again would let it in once more.
    if (state.over) return { tag: 'busy', retryMs: 1 }
  }
}

/** As many rounds as there are end it before the longest pause. */
const STEPPING_BACK: Backoff = { firstMs: 4, longestMs: 1000, jitter: 0.5 }

/** One question to all servers, and what to do with the answers that come after it was decided. */
class AskingRound {
  readonly #council: Council
  readonly #ticket: Ticket
  readonly #state: TicketState
  /** Servers that this question was sent to, and those of which nobody knows what became of it: one bit each. */
  #sent = 0
  #lost = 0
  #outcome: 'open' | 'held' | 'queued' | 'refused' = 'open'
  readonly #proposal: number | undefined

  constructor(council: Council, ticket: Ticket, state: TicketState) {
    this.#council = council
    this.#ticket = ticket
    this.#state = state
    // A minimum hold begins with the claim.
    this.#proposal = council.fences && ticket.minHoldMs === 0 ? council.proposals.next() : undefined
  }

  /** Undefined: nobody had a quorum, or not for long enough, and this ticket is the one that should ask again. */
  async play(attempt: number): Promise<AcquireAnswer | undefined> {
    const { tickets, nodes } = this.#council
    const [ticket, state] = [this.#ticket, this.#state]
    const askedAt = performance.now()
    const decision = await poll(nodes, (node) => this.#ask(node), {
      decide: (tally: Tally<AcquireAnswer>) => decide(this.#council, ticket.key, tally),
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
          (await claimFence(this.#council, ticket, state, decision.votes, this.#proposal))
        if (fence === undefined) {
          if (attempt < MOST_ROUNDS) return undefined
          throw votesLostError(ticket.key)
        }
        this.#outcome = 'held'
        state.fence = fence
        state.splits = 0
        state.validUntil = Math.max(state.validUntil, askedAt + usableMs(ticket.ttlMs))
        return { tag: 'held', fence }
      }
      case 'contended': {
        const answer = await contend(this.#council, ticket, state, decision.tally)
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
    // The release was sent after this request, or is owed.
    if (this.#state.over && this.#outcome !== 'refused') return
    if (answer.tag !== 'held') return
    if (this.#outcome === 'refused') withdraw(node, this.#ticket)
    // A holder tells it the fence with the next renewal.
    else if (this.#outcome === 'queued') {
      this.#state.waitsForAll = true
      this.#council.wake(this.#ticket.id)
    }
  }

  #failed(node: RedlockNode): void {
    this.#lost |= this.#sent & (1 << node.index)
    this.#state.doubtful |= this.#lost
    if (this.#outcome === 'refused' || this.#state.over) this.#cancel(node)
  }

  /** With patience 0 nothing is left behind. */
  #leave(tally: Tally<AcquireAnswer>): void {
    this.#council.tickets.end(this.#ticket.id)
    for (const node of this.#council.nodes) {
      if (tally.answers[node.index]?.tag === 'held') withdraw(node, this.#ticket)
      else this.#cancel(node)
    }
  }

  /** Where the answer was lost it may have a vote, now or later. */
  #cancel(node: RedlockNode): void {
    const { key, id, ttlMs, minHoldMs } = this.#ticket
    if ((this.#lost & (1 << node.index)) !== 0) {
      node.owe({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs))
    }
  }
}

/** Of a lease that is asked for once more: still the same one, as a server says that knows its fence. */
function knownFence({ fence, validUntil }: TicketState, votes: readonly Vote[]): bigint | undefined {
  if (fence === undefined || performance.now() >= validUntil) return undefined
  return fence === NO_FENCE || votes.some((vote) => vote.fence === fence) ? fence : undefined
}

function decide(council: Council, key: string, tally: Tally<AcquireAnswer>): Decision | undefined {
  const { nodes, quorum } = council
  const votes: Vote[] = []
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
  if (votes.length >= quorum) return { tag: 'elected', votes }
  if (votes.length + tally.pending >= quorum) return undefined
  if (answered < quorum) {
    if (answered + tally.pending >= quorum) return undefined
    throw tooFewError(council, tally, key)
  }
  if (votes.length + forgetful >= quorum) throw forgetfulError(council, key)
  return { tag: 'contended', tally }
}

/** Who does not wait is told that a key is busy, although nobody has it, only if this many tries were in vain. */
const MOST_ROUNDS = 6
