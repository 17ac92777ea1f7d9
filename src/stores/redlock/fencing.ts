import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { type Council, forgetfulError, NO_FENCE, settle, tooFewError } from './council.ts'
import type { ClaimAnswer } from './node.ts'
import { poll, type Tally } from './poll.ts'
import type { TicketState } from './tickets.ts'

/**
 * The fence of a ticket that has the votes of a quorum, each of which came with a fence of its own server.
 *
 * The largest of them is claimed on a quorum. A server accepts a claim only while it holds the ticket's vote, and only above
 * everything that was claimed before for this key. So two tickets never get the same one, as two quorums share a server; and
 * who begins after another has finished gets a larger one, as that server has raised its last fence to the other's.
 * A server that forgets everything begins with the time in µs, which is larger than what was claimed before.
 */
export async function claimFence(
  council: Council,
  ticket: Ticket,
  state: TicketState,
  votes: readonly bigint[],
): Promise<bigint> {
  const agreed = council.fences ? agreedFence(votes, council.quorum) : undefined
  if (agreed !== undefined) return agreed
  if (!council.fences && ticket.minHoldMs === 0) return NO_FENCE
  let fence = votes.reduce(larger)
  for (let attempt = 1; attempt <= MOST_CLAIMS; attempt += 1) {
    const outcome = await claim(council, ticket, state, fence)
    if (outcome === 'accepted') return council.fences ? fence : NO_FENCE
    // The last fence of a server is one for all keys. Among many readers of many keys it takes a larger step to be the first.
    fence = outcome + 1n + BigInt(Math.floor(Math.random() * 2 ** Math.min(2 * attempt, 20)))
  }
  throw new StoreError('store-unavailable', 'Others claimed fences faster than this one. Ask again.', {
    key: ticket.key,
  })
}

/** The fence that a quorum has written down already. */
export function agreedFence(votes: readonly bigint[], quorum: number): bigint | undefined {
  for (const [index, fence] of votes.entries()) {
    if (index + quorum > votes.length) return undefined
    if (votes.filter((other) => other === fence).length >= quorum) return fence
  }
  return undefined
}

/** Whether a quorum accepts, or else what was above it. */
function claim(
  council: Council,
  ticket: Ticket,
  state: TicketState,
  fence: bigint,
): Promise<'accepted' | bigint> {
  return poll(council.nodes, (node) => node.claim(ticket, { fence, mode: 'claim' }), {
    decide: (tally: Tally<ClaimAnswer>) => {
      let accepted = 0
      let above: bigint | undefined
      for (const answer of tally.answers) {
        if (answer?.tag === 'accepted') accepted += 1
        if (answer?.tag === 'too-low') above = larger(above ?? 0n, answer.above)
      }
      if (accepted >= council.quorum) {
        if (council.fences) state.fence = fence
        for (const node of council.nodes) {
          if (tally.answers[node.index]?.tag === 'too-low') settle(node, ticket, state)
        }
        return 'accepted'
      }
      if (accepted + tally.pending >= council.quorum) return undefined
      if (above !== undefined) return above
      throw lostError(council, tally, ticket.key)
    },
    late: (node, answer) => {
      if (answer.tag === 'too-low' && state.fence === fence) settle(node, ticket, state)
    },
  })
}

function lostError(council: Council, tally: Tally<ClaimAnswer>, key: string): StoreError {
  const answers = tally.answers.filter((answer) => answer !== undefined)
  if (answers.some(({ tag }) => tag === 'forgetful')) return forgetfulError(council, key)
  if (answers.length < council.quorum) return tooFewError(council, tally, key)
  return new StoreError('store-unavailable', 'Votes were lost before they could be used. Ask again.', { key })
}

function larger(one: bigint, other: bigint): bigint {
  return one > other ? one : other
}

const MOST_CLAIMS = 12
