import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { AcquireAnswer, Ticket } from '../../contract/store.ts'
import { poll, type Tally } from './poll.ts'
import type { Quorum } from './quorum.ts'
import type { RedlockServer } from './redlock-server.ts'
import type { VoteView } from './server-scripts.ts'
import type { TicketRecord } from './tickets.ts'

/**
 * Rule 4 in quorum.ts: decides what a ticket without a quorum does. Usually another ticket has the quorum, and this one waits. If
 * several asked at once, or servers were away, the votes may be split so that no ticket has enough. Then all tickets but one give
 * their votes back. All agree on the one that keeps them: it has the most votes, and among equals the smallest id. `undefined`:
 * this ticket is the one, and asks again.
 */
export async function contend(
  quorum: Quorum,
  ticket: Ticket,
  record: TicketRecord,
  tally: Tally<AcquireAnswer>,
): Promise<AcquireAnswer | undefined> {
  const answer = waiting(quorum, ticket, tally)
  if (tally.answers.every((one) => one?.tag !== 'held')) return answer
  const { votes, rival } = await countVotes(quorum, ticket)
  const isTaken = rival !== undefined && rival.votes >= quorum.majority
  const losesTo =
    rival !== undefined && (rival.votes > votes.size || (rival.votes === votes.size && rival.id < ticket.id))
  if (ticket.patienceMs === 0) return isTaken || losesTo ? answer : undefined
  // This ticket goes to the end of the queues. Each server then admits the next ticket, and in the end all admit the same one.
  const isBehind = (isTaken || losesTo) && (await giveWay(quorum, ticket, record, votes))
  if (isTaken || isBehind) {
    record.splitVotes = 0
    return answer
  }
  // The ticket asks again soon, in two cases. It is the one that keeps its votes: the others are about to give way, unless they
  // read the votes before this ticket had its own. Or it gives way, and not every server has taken its vote back: no other ticket
  // can have the key before.
  record.splitVotes += 1
  const againMs = backoffMs(SPLIT, record.splitVotes)
  return answer.tag === 'queued' ? { ...answer, askAgainMs: Math.min(answer.askAgainMs, againMs) } : answer
}

/**
 * Gives back the votes of this ticket. Resolves with whether it waits on all these servers now. The next round begins after that,
 * because a vote that is being given back must not be counted.
 */
function giveWay(
  { servers }: Quorum,
  ticket: Ticket,
  record: TicketRecord,
  votes: ReadonlyMap<number, string>,
): Promise<boolean> {
  const asked = servers.filter(({ index }) => votes.has(index))
  const requeue = (server: RedlockServer): boolean | Promise<boolean> =>
    !record.isOver && server.scripts.requeue(ticket, votes.get(server.index) ?? '')
  return poll(asked, requeue, {
    decide: ({ answers, pending }: Tally<boolean>) =>
      pending > 0 ? undefined : asked.every(({ index }) => answers[index] === true),
  })
}

interface VoteCounts {
  /** The servers on which this ticket has a vote, and when each vote ends. */
  readonly votes: ReadonlyMap<number, string>
  /**
   * The other ticket with the most votes. A reader counts as a rival of a reader, too: on one server the first may wait behind a
   * writer, on another server the second.
   */
  readonly rival: { readonly id: string; readonly votes: number } | undefined
}

/** Reads the votes of all tickets in the room, from every server. */
async function countVotes(quorum: Quorum, ticket: Ticket): Promise<VoteCounts> {
  const rooms = await poll(quorum.servers, (server) => server.scripts.votes(ticket.key), {
    decide: ({ answers, pending }: Tally<readonly VoteView[]>) => (pending > 0 ? undefined : answers),
  })
  const votes = new Map<number, string>()
  const rivals = new Map<string, number>()
  for (const [index, room] of rooms.entries()) {
    for (const { id, endsAt } of room ?? []) {
      if (id === ticket.id) votes.set(index, endsAt)
      else rivals.set(id, (rivals.get(id) ?? 0) + 1)
    }
  }
  const [first] = [...rivals].sort(([one, some], [other, more]) => more - some || (one < other ? -1 : 1))
  return { votes, rival: first === undefined ? undefined : { id: first[0], votes: first[1] } }
}

/**
 * The answer to a ticket without a quorum. On a quorum of the servers at most `ahead` others are before it. `missing` is the
 * number of votes that it still needs: it asks again as soon as so many more servers may have let it in.
 */
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

/** The n-th smallest number, or the largest if there are fewer. */
function nth(numbers: readonly number[], n: number): number | undefined {
  const sorted = [...numbers].sort((one, other) => one - other)
  return sorted[Math.min(Math.max(1, n), sorted.length) - 1]
}

const SPLIT: Backoff = { firstMs: 20, longestMs: 1000, jitter: 0.5 }
