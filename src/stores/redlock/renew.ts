import { usableMs } from '../../base/validity.ts'
import type { AcquireAnswer, Gone, RenewAnswer, Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { agreedFence, claimFence, type Vote as NodeVote, votesLostError } from './fencing.ts'
import type { RedlockNode } from './node.ts'
import { poll, type Tally } from './poll.ts'
import { type Council, forgetfulError, inTurn, settle, tooFewError, withdraw } from './quorum.ts'
import type { TicketState } from './tickets.ts'

/** What one server says of a ticket; what an acquire says of it may stand in for a renewal. */
type Vote = RenewAnswer | Extract<AcquireAnswer, { tag: 'busy' }>

type VoteTally = Tally<Vote>

/**
 * Keeps tickets alive, all of them with one request to each server. Where it is not known what has become of one its place in the
 * list stays empty, and if that is so of all of them, the call fails.
 */
export async function renew(council: Council, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  const all = tickets.map((ticket, place) => ({ ticket, place, state: council.tickets.of(ticket) }))
  const asked = all.filter(({ state }) => !isOpen(state))
  if (asked.length === 0) {
    await Promise.allSettled(all.map(({ state }) => state.asking))
    return renew(council, tickets)
  }
  // The places of the others are left empty, so that nobody has to wait for them. They are woken once that question has its
  // answer, as this one may have been asked for a reason that came later.
  for (const { state } of all) if (isOpen(state)) state.overtaken = true
  const answers: RenewAnswer[] = new Array(tickets.length)
  let failure: unknown
  const askedAt = performance.now()
  const round = askAll(council, asked)
  await Promise.all(
    asked.map(async ({ ticket, state, place }, index) => {
      const renewal = new Renewal(council, { ticket, state, askedAt })
      const settle = async (): Promise<RenewAnswer> => renewal.settle(tallyOf(await round, index))
      try {
        answers[place] = await (state.fence === undefined ? inTurn(council, ticket, state, settle) : settle())
      } catch (error) {
        failure = error
      }
    }),
  )
  if (failure !== undefined && !answers.some((answer) => answer !== undefined)) throw failure
  return answers
}

/** Whether an earlier question about a ticket that does not hold yet has no answer. */
function isOpen({ fence, asking }: TicketState): boolean {
  return fence === undefined && asking !== undefined
}

/** A ticket that is asked about, and where its answer goes. */
interface Asked {
  readonly ticket: Ticket
  readonly state: TicketState
  readonly place: number
}

function askAll(council: Council, asked: readonly Asked[]): Promise<Tally<readonly RenewAnswer[]>> {
  const tickets = asked.map(({ ticket }) => ticket)
  return poll(council.nodes, (node) => node.rooms.renew(tickets), {
    decide: (tally: Tally<readonly RenewAnswer[]>) => {
      if (tally.pending === 0) {
        for (const { state } of asked) state.waitsForAll = false
        return tally
      }
      return asked.every(({ state }, index) => isDecided(council, state, tallyOf(tally, index)))
        ? { ...tally, answers: [...tally.answers] }
        : undefined
    },
    late: (_, answers) => {
      for (const [index, { ticket, state }] of asked.entries()) {
        // Let in by one more server, it would not know of that vote, and others would wait for it.
        if (answers[index]?.tag !== 'held' || state.fence !== undefined || state.over) continue
        state.waitsForAll = true
        council.wake(ticket.id)
      }
    },
  })
}

function tallyOf(tally: Tally<readonly RenewAnswer[]>, index: number): VoteTally {
  return { ...tally, answers: Array.from(tally.answers, (answers) => answers?.[index]) }
}

function isDecided(council: Council, state: TicketState, { answers, pending }: VoteTally): boolean {
  const { quorum } = council
  if (answers.some(isEviction)) return true
  if (count(answers, 'held') >= quorum) {
    // Of another process: it has a fence, which is known for sure only where a quorum says the same.
    const isOurs = state.fence !== undefined || state.asked !== 0
    return isOurs || agreedFence(votesOf(council, answers), quorum) !== undefined
  }
  if (state.waitsForAll) return false
  const waits = count(answers, 'held') + count(answers, 'queued')
  // Neither can the key be its own, nor is it open whether it waits.
  return count(answers, 'held') + pending < quorum && (waits >= quorum || waits + pending < quorum)
}

/** What becomes of one ticket of a renewal. */
class Renewal {
  readonly #council: Council
  readonly #ticket: Ticket
  readonly #state: TicketState
  readonly #askedAt: number

  constructor(
    council: Council,
    {
      ticket,
      state,
      askedAt,
    }: { readonly ticket: Ticket; readonly state: TicketState; readonly askedAt: number },
  ) {
    this.#council = council
    this.#ticket = ticket
    this.#state = state
    this.#askedAt = askedAt
  }

  async settle(tally: VoteTally): Promise<RenewAnswer> {
    const { quorum } = this.#council
    const eviction = tally.answers.find(isEviction)
    if (eviction !== undefined) return this.#evicted(eviction)
    const held = count(tally.answers, 'held')
    const isHolder = this.#state.fence !== undefined
    if (held >= quorum && (isHolder || this.#counting(tally) >= quorum)) return this.#held(tally)
    if (held >= quorum) throw forgetfulError(this.#council, this.#ticket.key)
    if (isHolder) return this.#heal(tally)
    if (held + count(tally.answers, 'queued') >= quorum) return this.#wait(tally)
    return this.#lost(tally)
  }

  async #held({ answers }: VoteTally): Promise<RenewAnswer> {
    const state = this.#state
    const fence =
      state.fence ?? (await claimFence(this.#council, this.#ticket, state, votesOf(this.#council, answers)))
    if (fence === undefined) throw votesLostError(this.#ticket.key)
    state.fence = fence
    state.splits = 0
    state.validUntil = Math.max(state.validUntil, this.#askedAt + usableMs(this.#ticket.ttlMs))
    for (const [index, answer] of answers.entries()) {
      const node = this.#council.nodes[index]
      // Let in by a server of its own accord, after the fence was agreed.
      if (node !== undefined && answer?.tag === 'held' && answer.fence !== fence)
        settle(node, this.#ticket, state)
    }
    return { tag: 'held', fence }
  }

  /**
   * Servers have forgotten the holder: they were restarted, or flushed. Until its deadline nobody else can have a quorum, as
   * theirs do not count yet, so it may take their votes again.
   */
  async #heal(tally: VoteTally): Promise<RenewAnswer> {
    const state = this.#state
    const vacant = this.#where(tally, 'gone')
    if (performance.now() >= state.validUntil || vacant.length === 0) return this.#lost(tally)
    const healed = await this.#ask(vacant, tally, { ...this.#ticket, patienceMs: 0 })
    const isInTime = performance.now() < state.validUntil
    if (count(healed.answers, 'held') < this.#council.quorum || !isInTime) return this.#lost(healed)
    return this.#held(healed)
  }

  /** Some servers do not know that it waits: they were away, or were restarted. There it stands in line again. */
  async #wait(tally: VoteTally): Promise<RenewAnswer> {
    const { quorum } = this.#council
    const vacant = this.#where(tally, 'gone')
    const joined = vacant.length === 0 ? tally : await this.#ask(vacant, tally, this.#ticket)
    const gone = joined.answers.find((answer) => answer?.tag === 'gone')
    if (gone !== undefined && gone.tag === 'gone') return this.#evicted(gone)
    const held = count(joined.answers, 'held')
    if (this.#counting(joined) >= quorum) return this.#held(joined)
    if (held + count(joined.answers, 'queued') < quorum)
      throw tooFewError(this.#council, joined, this.#ticket.key)
    const answer = await contend(this.#council, this.#ticket, this.#state, {
      ...joined,
      answers: joined.answers.map(asAnswer),
    })
    return { tag: 'queued', askAgainMs: answer?.tag === 'queued' ? answer.askAgainMs : 1 }
  }

  /** Without a quorum: certainly, or as far as is known. */
  #lost(tally: VoteTally): RenewAnswer {
    const { nodes, quorum, tickets } = this.#council
    const { answers } = tally
    const unknown = nodes.length - answers.filter((answer) => answer !== undefined).length
    if (count(answers, 'held') + count(answers, 'queued') + unknown >= quorum)
      throw tooFewError(this.#council, tally, this.#ticket.key)
    // Who waits asks again under the same id, and keeps the places that it has.
    if (this.#state.fence === undefined && this.#ticket.patienceMs > 0) return { tag: 'gone', evicted: false }
    // What is left of a holder on the others must not stand in anybody's way.
    for (const node of nodes) if (answers[node.index]?.tag !== 'gone') withdraw(node, this.#ticket)
    tickets.end(this.#ticket.id)
    return { tag: 'gone', evicted: false }
  }

  #evicted(gone: Gone): RenewAnswer {
    this.#council.tickets.end(this.#ticket.id)
    // Also from servers that could not be reached then.
    for (const node of this.#council.nodes) withdraw(node, this.#ticket)
    return gone
  }

  /** Votes of servers that may have forgotten somebody count only for who holds already. */
  #counting({ answers }: VoteTally): number {
    const { nodes } = this.#council
    return answers.filter((answer, index) => answer?.tag === 'held' && nodes[index]?.counts === true).length
  }

  #where({ answers }: VoteTally, tag: Vote['tag']): readonly RedlockNode[] {
    return this.#council.nodes.filter((node) => answers[node.index]?.tag === tag)
  }

  /** Asks some servers to let it in, and puts their answers in place of those before. */
  async #ask(nodes: readonly RedlockNode[], before: VoteTally, ticket: Ticket): Promise<VoteTally> {
    const state = this.#state
    return poll(
      nodes,
      (node) => {
        // A release that was sent meanwhile is not to be undone.
        if (state.over) return { tag: 'gone', evicted: false } as const
        // Of another process's ticket it is not known where that has asked.
        if (state.asked !== 0) state.asked |= 1 << node.index
        return node.rooms.acquire(ticket)
      },
      {
        failed: ({ index }) => {
          state.doubtful |= state.asked & (1 << index)
        },
        decide: ({ answers, pending, errors }) => {
          if (pending > 0) return undefined
          const merged: (Vote | undefined)[] = before.answers.map((answer, index) => answers[index] ?? answer)
          for (const node of nodes) if (answers[node.index] === undefined) merged[node.index] = undefined
          return { answers: merged, pending: 0, errors: [...before.errors, ...errors] }
        },
      },
    )
  }
}

function count(answers: readonly (Vote | undefined)[], tag: Vote['tag']): number {
  let number = 0
  for (const answer of answers) if (answer?.tag === tag) number += 1
  return number
}

/** The place in the line is nobody's concern any more. */
function asAnswer(vote: Vote | undefined): AcquireAnswer | undefined {
  return vote?.tag === 'queued' ? { ahead: 0, ...vote } : vote
}

function votesOf({ nodes }: Council, answers: readonly (Vote | undefined)[]): readonly NodeVote[] {
  return nodes.flatMap((node) => {
    const answer = answers[node.index]
    return answer?.tag === 'held' ? [{ node, fence: answer.fence }] : []
  })
}

function isEviction(answer: Vote | undefined): answer is Gone {
  return answer?.tag === 'gone' && answer.evicted
}
