import { type Instant, now, systemClock } from '../../base/clock.ts'
import type { AcquireAnswer, Gone, RenewAnswer, Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { agreedFence, claimFence, type FencedVote, votesLostError } from './fencing.ts'
import type { RedlockNode } from './node.ts'
import { poll, type Tally } from './poll.ts'
import { forgetfulError, inTurn, propagateFence, type Quorum, tooFewError, withdraw } from './quorum.ts'
import { grant, isValid, type TicketState } from './tickets.ts'

/** What one server says of a ticket: the answer to a renewal, or to an acquire that took its place. */
type NodeAnswer = RenewAnswer | Extract<AcquireAnswer, { tag: 'busy' }>

type NodeTally = Tally<NodeAnswer>

/**
 * Renews tickets, all of them with one request to each server. The answer of a ticket whose fate is unknown stays empty; if that
 * is so of all tickets, the call fails.
 */
export async function renew(quorum: Quorum, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  const all = tickets.map((ticket, place) => ({ ticket, place, state: quorum.tickets.of(ticket) }))
  const asked = all.filter(({ state }) => !isOpen(state))
  if (asked.length === 0) {
    await Promise.allSettled(all.map(({ state }) => state.asking))
    return renew(quorum, tickets)
  }
  // Tickets with an open question get no answer now, so that the others need not wait for them. They are woken once that
  // question is answered: the reason for this renewal may have come after it.
  for (const { state } of all) if (isOpen(state)) state.overtaken = true
  const answers: RenewAnswer[] = new Array(tickets.length)
  let failure: unknown
  const askedAt = now(systemClock)
  const round = askAll(quorum, asked)
  await Promise.all(
    asked.map(async ({ ticket, state, place }, index) => {
      const renewal = new Renewal(quorum, { ticket, state, askedAt })
      const answer = async (): Promise<RenewAnswer> => renewal.answerTo(tallyOf(await round, index))
      try {
        answers[place] = await (state.fence === undefined ? inTurn(quorum, ticket, state, answer) : answer())
      } catch (error) {
        failure = error
      }
    }),
  )
  if (failure !== undefined && !answers.some((answer) => answer !== undefined)) throw failure
  return answers
}

/** Whether an earlier question about a ticket that does not hold yet is still open. */
function isOpen({ fence, asking }: TicketState): boolean {
  return fence === undefined && asking !== undefined
}

/** A ticket that is asked about, and where its answer goes. */
interface Asked {
  readonly ticket: Ticket
  readonly state: TicketState
  readonly place: number
}

function askAll(quorum: Quorum, asked: readonly Asked[]): Promise<Tally<readonly RenewAnswer[]>> {
  const tickets = asked.map(({ ticket }) => ticket)
  return poll(quorum.nodes, (node) => node.rooms.renew(tickets), {
    decide: (tally: Tally<readonly RenewAnswer[]>) => {
      if (tally.pending === 0) {
        for (const { state } of asked) state.waitsForAll = false
        return tally
      }
      return asked.every(({ state }, index) => isDecided(quorum, state, tallyOf(tally, index)))
        ? { ...tally, answers: [...tally.answers] }
        : undefined
    },
    late: (_, answers) => {
      for (const [index, { ticket, state }] of asked.entries()) {
        // One more server let the ticket in. Unless it is woken, that vote is never counted, and others wait behind it.
        if (answers[index]?.tag !== 'held' || state.fence !== undefined || state.over) continue
        state.waitsForAll = true
        quorum.wake(ticket.id)
      }
    },
  })
}

function tallyOf(tally: Tally<readonly RenewAnswer[]>, index: number): NodeTally {
  return { ...tally, answers: Array.from(tally.answers, (answers) => answers?.[index]) }
}

function isDecided(quorum: Quorum, state: TicketState, { answers, pending }: NodeTally): boolean {
  const { majority } = quorum
  if (answers.some(isEviction)) return true
  if (count(answers, 'held') >= majority) {
    // A ticket of another process has a fence already, which is certain only where a quorum names the same.
    const isOurs = state.fence !== undefined || state.asked !== 0
    return isOurs || agreedFence(votesOf(quorum, answers), majority) !== undefined
  }
  if (state.waitsForAll) return false
  const waits = count(answers, 'held') + count(answers, 'queued')
  // The ticket cannot have a quorum of votes any more, and whether it waits is certain.
  return count(answers, 'held') + pending < majority && (waits >= majority || waits + pending < majority)
}

/** What becomes of one ticket of a renewal. */
class Renewal {
  readonly #quorum: Quorum
  readonly #ticket: Ticket
  readonly #state: TicketState
  readonly #askedAt: Instant

  constructor(
    quorum: Quorum,
    {
      ticket,
      state,
      askedAt,
    }: { readonly ticket: Ticket; readonly state: TicketState; readonly askedAt: Instant },
  ) {
    this.#quorum = quorum
    this.#ticket = ticket
    this.#state = state
    this.#askedAt = askedAt
  }

  async answerTo(tally: NodeTally): Promise<RenewAnswer> {
    const { majority } = this.#quorum
    const eviction = tally.answers.find(isEviction)
    if (eviction !== undefined) return this.#evicted(eviction)
    const held = count(tally.answers, 'held')
    const isHolder = this.#state.fence !== undefined
    if (held >= majority && (isHolder || this.#counting(tally) >= majority)) return this.#held(tally)
    if (held >= majority) throw forgetfulError(this.#quorum, this.#ticket.key)
    if (isHolder) return this.#heal(tally)
    if (held + count(tally.answers, 'queued') >= majority) return this.#wait(tally)
    return this.#lost(tally)
  }

  async #held({ answers }: NodeTally): Promise<RenewAnswer> {
    const state = this.#state
    const fence =
      state.fence ?? (await claimFence(this.#quorum, this.#ticket, state, votesOf(this.#quorum, answers)))
    if (fence === undefined) throw votesLostError(this.#ticket.key)
    state.fence = fence
    state.splits = 0
    grant(state, this.#askedAt, this.#ticket.ttlMs)
    for (const [index, answer] of answers.entries()) {
      const node = this.#quorum.nodes[index]
      // This server let the ticket in after the fence was agreed, and gave a fence of its own.
      if (node !== undefined && answer?.tag === 'held' && answer.fence !== fence)
        propagateFence(node, this.#ticket, state)
    }
    return { tag: 'held', fence }
  }

  /**
   * Called when servers were restarted or flushed, and have forgotten the holder. Their votes do not count yet, so no other
   * ticket can have a quorum before the holder's deadline. Until then the holder may take these votes again.
   */
  async #heal(tally: NodeTally): Promise<RenewAnswer> {
    const state = this.#state
    const vacant = this.#where(tally, 'gone')
    if (!isValid(state) || vacant.length === 0) return this.#lost(tally)
    const healed = await this.#ask(vacant, tally, { ...this.#ticket, patienceMs: 0 })
    if (count(healed.answers, 'held') < this.#quorum.majority || !isValid(state)) return this.#lost(healed)
    return this.#held(healed)
  }

  /** Servers that were away or restarted do not know that the ticket waits. It joins their queues again. */
  async #wait(tally: NodeTally): Promise<RenewAnswer> {
    const { majority } = this.#quorum
    const vacant = this.#where(tally, 'gone')
    const joined = vacant.length === 0 ? tally : await this.#ask(vacant, tally, this.#ticket)
    const gone = joined.answers.find((answer) => answer?.tag === 'gone')
    if (gone !== undefined && gone.tag === 'gone') return this.#evicted(gone)
    const held = count(joined.answers, 'held')
    if (this.#counting(joined) >= majority) return this.#held(joined)
    if (held + count(joined.answers, 'queued') < majority)
      throw tooFewError(this.#quorum, joined, this.#ticket.key)
    const answer = await contend(this.#quorum, this.#ticket, this.#state, {
      ...joined,
      answers: joined.answers.map(asAnswer),
    })
    return { tag: 'queued', askAgainMs: answer?.tag === 'queued' ? answer.askAgainMs : 1 }
  }

  /** The ticket has no quorum. Throws where too few servers answered to be certain. */
  #lost(tally: NodeTally): RenewAnswer {
    const { nodes, majority, tickets } = this.#quorum
    const { answers } = tally
    const unknown = nodes.length - answers.filter((answer) => answer !== undefined).length
    if (count(answers, 'held') + count(answers, 'queued') + unknown >= majority)
      throw tooFewError(this.#quorum, tally, this.#ticket.key)
    // A waiter asks again under the same id, and keeps its places in the queues.
    if (this.#state.fence === undefined && this.#ticket.patienceMs > 0) return { tag: 'gone', evicted: false }
    // Votes that a holder has left on other servers must not block anybody.
    for (const node of nodes) if (answers[node.index]?.tag !== 'gone') withdraw(node, this.#ticket)
    tickets.end(this.#ticket.id)
    return { tag: 'gone', evicted: false }
  }

  #evicted(gone: Gone): RenewAnswer {
    this.#quorum.tickets.end(this.#ticket.id)
    // Also on servers that the eviction did not reach.
    for (const node of this.#quorum.nodes) withdraw(node, this.#ticket)
    return gone
  }

  /** How many votes count for a new holder: not those of servers that may have forgotten another one. */
  #counting({ answers }: NodeTally): number {
    const { nodes } = this.#quorum
    return answers.filter((answer, index) => answer?.tag === 'held' && nodes[index]?.counts === true).length
  }

  #where({ answers }: NodeTally, tag: NodeAnswer['tag']): readonly RedlockNode[] {
    return this.#quorum.nodes.filter((node) => answers[node.index]?.tag === tag)
  }

  /** Sends an acquire to some servers, and puts their answers in place of those before. */
  async #ask(nodes: readonly RedlockNode[], before: NodeTally, ticket: Ticket): Promise<NodeTally> {
    const state = this.#state
    return poll(
      nodes,
      (node) => {
        // The ticket was released meanwhile, which an acquire would undo.
        if (state.over) return { tag: 'gone', evicted: false } as const
        // 0 means a ticket of another process. Which servers that asked is unknown, and stays so.
        if (state.asked !== 0) state.asked |= 1 << node.index
        return node.rooms.acquire(ticket)
      },
      {
        failed: ({ index }) => {
          state.doubtful |= state.asked & (1 << index)
        },
        decide: ({ answers, pending, errors }) => {
          if (pending > 0) return undefined
          const merged: (NodeAnswer | undefined)[] = before.answers.map(
            (answer, index) => answers[index] ?? answer,
          )
          for (const node of nodes) if (answers[node.index] === undefined) merged[node.index] = undefined
          return { answers: merged, pending: 0, errors: [...before.errors, ...errors] }
        },
      },
    )
  }
}

function count(answers: readonly (NodeAnswer | undefined)[], tag: NodeAnswer['tag']): number {
  let number = 0
  for (const answer of answers) if (answer?.tag === tag) number += 1
  return number
}

/** A renewal does not tell how many are ahead, and the answer does not need it. */
function asAnswer(vote: NodeAnswer | undefined): AcquireAnswer | undefined {
  return vote?.tag === 'queued' ? { ahead: 0, ...vote } : vote
}

function votesOf({ nodes }: Quorum, answers: readonly (NodeAnswer | undefined)[]): readonly FencedVote[] {
  return nodes.flatMap((node) => {
    const answer = answers[node.index]
    return answer?.tag === 'held' ? [{ node, fence: answer.fence }] : []
  })
}

function isEviction(answer: NodeAnswer | undefined): answer is Gone {
  return answer?.tag === 'gone' && answer.evicted
}
