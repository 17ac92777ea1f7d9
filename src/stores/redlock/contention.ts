import { type AcquireAnswer, type Ticket, UNLIMITED } from '../../contract/store.ts'
import type { Council } from './council.ts'
import type { Rival } from './node-scripts.ts'
import { poll, type Tally } from './poll.ts'
import type { TicketState } from './tickets.ts'

/**
 * What to do without a quorum. Usually somebody else has it. But where several asked at once, or servers were away, each may
 * have a part and none enough; then all but one give way, and all agree who that is: the one with the most votes, and among
 * equals the one with the smallest id. Undefined: this ticket is the one.
 */
export async function contend(
  council: Council,
  ticket: Ticket,
  state: TicketState,
  tally: Tally<AcquireAnswer>,
): Promise<AcquireAnswer | undefined> {
  const mine = council.nodes.filter((node) => tally.answers[node.index]?.tag === 'held')
  if (mine.length === 0) return waiting(council, ticket, tally)
  const { votes, rival } = await standings(council, ticket)
  const isTaken = rival !== undefined && rival.votes >= council.quorum
  if (isTaken && ticket.patienceMs > 0) return waiting(council, ticket, tally)
  const losesTo =
    rival !== undefined && (rival.votes > votes || (rival.votes === votes && rival.id < ticket.id))
  if (isTaken || losesTo) {
    if (ticket.patienceMs === 0) return waiting(council, ticket, tally)
    // Behind the others: each server lets in who is next there, and in the end all of them the same one.
    for (const node of mine) {
      node.ask(() => (state.over ? false : node.scripts.requeue(ticket)), {
        answered: () => {},
        // It may have given way or not, and nobody else can while it has not.
        failed: () => setTimeout(() => council.wake(ticket.id), AGAIN_MS).unref(),
      })
    }
    return waiting(council, ticket, tally)
  }
  if (ticket.patienceMs === 0) return undefined
  // The others are about to give way, unless they looked before this one had its votes. So it asks once more.
  state.splits += 1
  const againMs = Math.min(10 * 2 ** state.splits, 1000) * (0.5 + Math.random() / 2)
  const answer = waiting(council, ticket, tally)
  return answer.tag === 'queued' ? { ...answer, askAgainMs: Math.min(answer.askAgainMs, againMs) } : answer
}

const AGAIN_MS = 50

/** How it stands with the votes: how many this ticket has, and who of those that exclude it has the most. */
async function standings(
  council: Council,
  ticket: Ticket,
): Promise<{ readonly votes: number; readonly rival: { id: string; votes: number } | undefined }> {
  const votes = await poll(council.nodes, (node) => node.scripts.look(ticket.key), {
    decide: ({ answers, pending }: Tally<readonly Rival[]>) => {
      if (pending > 0) return undefined
      const counted = new Map<string, number>()
      for (const { id, limit } of answers.flatMap((rivals) => rivals ?? [])) {
        const together = limit === UNLIMITED && ticket.limit === UNLIMITED
        if (id === ticket.id || !together) counted.set(id, (counted.get(id) ?? 0) + 1)
      }
      return counted
    },
  })
  const own = votes.get(ticket.id) ?? 0
  votes.delete(ticket.id)
  const [first] = [...votes].sort(([one, some], [other, more]) => more - some || (one < other ? -1 : 1))
  return { votes: own, rival: first === undefined ? undefined : { id: first[0], votes: first[1] } }
}

/** What a ticket without a quorum is told: the place and the times that enough servers agree to. */
function waiting(
  { quorum }: Council,
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
  const missing = quorum - answers.filter((answer) => answer?.tag === 'held').length
  const soonest = nth(waits, missing) ?? 1
  if (ticket.patienceMs === 0) return { tag: 'busy', retryMs: soonest }
  return { tag: 'queued', ahead: nth(ahead, quorum) ?? 0, askAgainMs: soonest }
}

/** The n-th smallest, or the largest where there are fewer. */
function nth(numbers: readonly number[], n: number): number | undefined {
  const sorted = [...numbers].sort((one, other) => one - other)
  return sorted[Math.min(Math.max(1, n), sorted.length) - 1]
}
