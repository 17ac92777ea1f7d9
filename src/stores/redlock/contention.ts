import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { AcquireAnswer, Ticket } from '../../contract/store.ts'
import type { RedlockNode } from './node.ts'
import type { Rival } from './node-scripts.ts'
import { poll, type Tally } from './poll.ts'
import type { Quorum } from './quorum.ts'
import type { TicketState } from './tickets.ts'

/**
 * Decides what a ticket without a quorum does. Usually another ticket has the quorum. If several asked at once, or servers were
 * away, the votes may be split and no ticket has enough. Then all tickets but one give way. All agree on that one: it has the
 * most votes, and among equals the smallest id. `undefined`: this ticket is the one, and asks again.
 */
export async function contend(
  quorum: Quorum,
  ticket: Ticket,
  state: TicketState,
  tally: Tally<AcquireAnswer>,
): Promise<AcquireAnswer | undefined> {
  const answer = waiting(quorum, ticket, tally)
  if (tally.answers.every((one) => one?.tag !== 'held')) return answer
  const { votes, rival } = await countVotes(quorum, ticket)
  const isTaken = rival !== undefined && rival.votes >= quorum.majority
  const losesTo =
    rival !== undefined && (rival.votes > votes.size || (rival.votes === votes.size && rival.id < ticket.id))
  if (ticket.patienceMs === 0) return isTaken || losesTo ? answer : undefined
  // This ticket gives way to the end of the queues. Each server then admits its next ticket, in the end all the same one.
  const isBehind = (isTaken || losesTo) && (await giveWay(quorum, ticket, state, votes))
  if (isTaken || isBehind) {
    state.splits = 0
    return answer
  }
  // The other tickets are about to give way, unless they looked before this one had its votes. Or not every server has taken
  // this ticket's vote back yet, and no other ticket can have the key before. So this ticket asks again soon.
  state.splits += 1
  const againMs = backoffMs(SPLIT, state.splits)
  return answer.tag === 'queued' ? { ...answer, askAgainMs: Math.min(answer.askAgainMs, againMs) } : answer
}

/**
 * Gives back the votes of this ticket. Resolves with whether it waits on all these servers now. The next question waits for
 * that, because a vote that is being given back must not be counted.
 */
function giveWay(
  { nodes }: Quorum,
  ticket: Ticket,
  state: TicketState,
  votes: ReadonlyMap<number, string>,
): Promise<boolean> {
  const asked = nodes.filter(({ index }) => votes.has(index))
  const requeue = (node: RedlockNode): boolean | Promise<boolean> =>
    !state.over && node.scripts.requeue(ticket, votes.get(node.index) ?? '')
  return poll(asked, requeue, {
    decide: ({ answers, pending }: Tally<boolean>) =>
      pending > 0 ? undefined : asked.every(({ index }) => answers[index] === true),
  })
}

interface VoteCounts {
  /** The servers on which this ticket has a vote, and when each vote ends. */
  readonly votes: ReadonlyMap<number, string>
  /** The other ticket with the most votes. Readers count too: a reader may be before a writer that another reader waits for. */
  readonly rival: { readonly id: string; readonly votes: number } | undefined
}

/** Reads the votes of all tickets in the room, from every server. */
async function countVotes(quorum: Quorum, ticket: Ticket): Promise<VoteCounts> {
  const rooms = await poll(quorum.nodes, (node) => node.scripts.votes(ticket.key), {
    decide: ({ answers, pending }: Tally<readonly Rival[]>) => (pending > 0 ? undefined : answers),
  })
  const votes = new Map<number, string>()
  const rivals = new Map<string, number>()
  for (const [index, room] of rooms.entries()) {
    for (const { id, till } of room ?? []) {
      if (id === ticket.id) votes.set(index, till)
      else rivals.set(id, (rivals.get(id) ?? 0) + 1)
    }
  }
  const [first] = [...rivals].sort(([one, some], [other, more]) => more - some || (one < other ? -1 : 1))
  return { votes, rival: first === undefined ? undefined : { id: first[0], votes: first[1] } }
}

/** What a ticket without a quorum is told: the place and the times that enough servers agree to. */
function waiting(
  { majority }: Quorum,
  ticket: Ticket,
  { answers }: Tally<AcquireAnswer>,
): Extract<AcquireAnswer, { tag: 'busy' | 'queued' }> {
  const ahead: number[] = []
  const waits: number[] = []
  for (const answer of answers) {
    if (answer?.tag === 'held') ahead.push(0)
    if (answer?.tag === 'busy') waits.push(answer.retryMs)
    if (answer?.tag === 'queued') {
      ahead.push(answer.ahead)
      waits.push(answer.askAgainMs)
    }
  }
  const missing = majority - answers.filter((answer) => answer?.tag === 'held').length
  const soonest = nth(waits, missing) ?? 1
  if (ticket.patienceMs === 0) return { tag: 'busy', retryMs: soonest }
  return { tag: 'queued', ahead: nth(ahead, majority) ?? 0, askAgainMs: soonest }
}

/** The n-th smallest, or the largest where there are fewer. */
function nth(numbers: readonly number[], n: number): number | undefined {
  const sorted = [...numbers].sort((one, other) => one - other)
  return sorted[Math.min(Math.max(1, n), sorted.length) - 1]
}

const SPLIT: Backoff = { firstMs: 20, longestMs: 1000, jitter: 0.5 }
