import { type Instant, now, systemClock } from '../../base/clock.ts'
import { type AcquireAnswer, GONE, type Gone, type RenewAnswer, type Ticket } from '../../contract/store.ts'
import { contend } from './contention.ts'
import { agreedFence, claimFence, type Vote, votesLostError } from './fencing.ts'
import { poll, type Tally } from './poll.ts'
import { forgetfulError, inTurn, propagateFence, type Quorum, tooFewError, withdraw } from './quorum.ts'
import type { RedlockServer } from './redlock-server.ts'
import { has, withServer } from './server-set.ts'
import { grant, isOurs, isValid, type TicketRecord } from './tickets.ts'

/** A server's answer about a ticket: to a renewal, or to the acquire that {@link Renewal} sends after it. */
type ServerAnswer = RenewAnswer | Extract<AcquireAnswer, { tag: 'busy' }>

type ServerTally = Tally<ServerAnswer>

/**
 * Renews tickets with one request to each server for all of them, by the rules in quorum.ts. If too few servers tell what became
 * of a ticket, its answer stays empty. If all answers are empty, the call fails.
 */
export async function renew(quorum: Quorum, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  const all = tickets.map((ticket, place) => ({ ticket, place, record: quorum.tickets.of(ticket) }))
  const asked = all.filter(({ record }) => !hasOpenRound(record))
  if (asked.length === 0) {
    await Promise.allSettled(all.map(({ record }) => record.lastRound))
    return renew(quorum, tickets)
  }
  // Tickets with an open round get no answer now, so that the others need not wait for them. They are woken after that round,
  // because the reason for this renewal may have come after the round began.
  for (const { record } of all) if (hasOpenRound(record)) record.hasMissedRenewal = true
  const answers: RenewAnswer[] = new Array(tickets.length)
  let failure: unknown
  const askedAt = now(systemClock)
  const round = askAll(quorum, asked)
  await Promise.all(
    asked.map(async ({ ticket, record, place }, index) => {
      const renewal = new Renewal(quorum, { ticket, record, askedAt })
      const answer = async (): Promise<RenewAnswer> => renewal.answerTo(tallyOf(await round, index))
      try {
        answers[place] = await (record.fence === undefined
          ? inTurn(quorum, ticket, record, answer)
          : answer())
      } catch (error) {
        failure = error
      }
    }),
  )
  if (failure !== undefined && !answers.some((answer) => answer !== undefined)) throw failure
  return answers
}

/** Whether an earlier round of a ticket that does not hold yet is still open. */
function hasOpenRound({ fence, lastRound }: TicketRecord): boolean {
  return fence === undefined && lastRound !== undefined
}

/** A ticket that the servers are asked about, and its place among the answers of the call. */
interface Asked {
  readonly ticket: Ticket
  readonly record: TicketRecord
  readonly place: number
}

function askAll(quorum: Quorum, asked: readonly Asked[]): Promise<Tally<readonly RenewAnswer[]>> {
  const tickets = asked.map(({ ticket }) => ticket)
  return poll(quorum.servers, (server) => server.rooms.renew(tickets), {
    decide: (tally: Tally<readonly RenewAnswer[]>) => {
      if (tally.pending === 0) {
        for (const { record } of asked) record.waitsForAll = false
        return tally
      }
      return asked.every(({ record }, index) => isDecided(quorum, record, tallyOf(tally, index)))
        ? { ...tally, answers: [...tally.answers] }
        : undefined
    },
    late: (_, answers) => {
      for (const [index, { ticket, record }] of asked.entries()) {
        // One more server let the ticket in. Without this wake the vote would never be counted, while others wait behind it.
        if (answers[index]?.tag !== 'held' || record.fence !== undefined || record.isOver) continue
        record.waitsForAll = true
        quorum.wake(ticket.id)
      }
    },
  })
}

function tallyOf(tally: Tally<readonly RenewAnswer[]>, index: number): ServerTally {
  return { ...tally, answers: Array.from(tally.answers, (answers) => answers?.[index]) }
}

function isDecided(quorum: Quorum, record: TicketRecord, { answers, pending }: ServerTally): boolean {
  const { majority } = quorum
  if (count(answers, 'held') >= majority) {
    // A ticket of another process has a fence already. It is certain only if a quorum names the same one.
    return (
      record.fence !== undefined ||
      isOurs(record) ||
      agreedFence(votesOf(quorum, answers), majority) !== undefined
    )
  }
  if (answers.some(isEviction)) return count(answers, 'held') + pending < majority
  if (record.waitsForAll) return false
  const waits = count(answers, 'held') + count(answers, 'queued')
  // The ticket cannot get a quorum of votes any more, and whether it waits is certain.
  return count(answers, 'held') + pending < majority && (waits >= majority || waits + pending < majority)
}

/** One ticket of a renewal: makes its answer of what the servers said. */
class Renewal {
  readonly #quorum: Quorum
  readonly #ticket: Ticket
  readonly #record: TicketRecord
  readonly #askedAt: Instant

  constructor(
    quorum: Quorum,
    {
      ticket,
      record,
      askedAt,
    }: { readonly ticket: Ticket; readonly record: TicketRecord; readonly askedAt: Instant },
  ) {
    this.#quorum = quorum
    this.#ticket = ticket
    this.#record = record
    this.#askedAt = askedAt
  }

  async answerTo(tally: ServerTally): Promise<RenewAnswer> {
    const { majority } = this.#quorum
    const held = count(tally.answers, 'held')
    const eviction = tally.answers.find(isEviction)
    // An eviction of those that wait may have found the ticket in the queue of a server that was the last to let it in.
    if (eviction !== undefined && held < majority) return this.#evicted(eviction)
    const isHolder = this.#record.fence !== undefined
    if (held >= majority && (isHolder || this.#counting(tally) >= majority)) return this.#held(tally)
    if (held >= majority) throw forgetfulError(this.#quorum, this.#ticket.key)
    if (isHolder) return this.#heal(tally)
    if (held + count(tally.answers, 'queued') >= majority) return this.#wait(tally)
    return this.#lost(tally)
  }

  async #held({ answers }: ServerTally): Promise<RenewAnswer> {
    const record = this.#record
    const fence =
      record.fence ??
      (await claimFence(this.#quorum, {
        ticket: this.#ticket,
        record,
        votes: votesOf(this.#quorum, answers),
        asksAgain: false,
      }))
    if (fence === undefined) throw votesLostError(this.#ticket.key)
    record.fence = fence
    record.splitVotes = 0
    grant(record, this.#askedAt, this.#ticket.ttlMs)
    for (const [index, answer] of answers.entries()) {
      const server = this.#quorum.servers[index]
      // This server let the ticket in after a quorum had agreed on the fence, and gave a fence of its own.
      if (server !== undefined && answer?.tag === 'held' && answer.fence !== fence)
        propagateFence(server, this.#ticket, record)
    }
    return { tag: 'held', fence }
  }

  /**
   * Called when servers were restarted or flushed and have forgotten the holder. They are forgetful, so no other ticket can have
   * a quorum before the holder's validity ends. Until then the holder may ask for these votes again.
   */
  async #heal(tally: ServerTally): Promise<RenewAnswer> {
    const record = this.#record
    const vacant = this.#where(tally, 'gone')
    if (!isValid(record) || vacant.length === 0) return this.#lost(tally)
    const healed = await this.#ask(vacant, tally, { ...this.#ticket, patienceMs: 0 })
    if (count(healed.answers, 'held') < this.#quorum.majority || !isValid(record)) return this.#lost(healed)
    return this.#held(healed)
  }

  /** Servers that were away or restarted do not know the waiter. It joins their queues again. */
  async #wait(tally: ServerTally): Promise<RenewAnswer> {
    const { majority } = this.#quorum
    const vacant = this.#where(tally, 'gone')
    const joined = vacant.length === 0 ? tally : await this.#ask(vacant, tally, this.#ticket)
    const gone = joined.answers.find((answer) => answer?.tag === 'gone')
    if (gone !== undefined && gone.tag === 'gone') return this.#evicted(gone)
    const held = count(joined.answers, 'held')
    if (this.#counting(joined) >= majority) return this.#held(joined)
    if (held + count(joined.answers, 'queued') < majority)
      throw tooFewError(this.#quorum, joined, this.#ticket.key)
    const answer = await contend(this.#quorum, this.#ticket, this.#record, {
      ...joined,
      answers: joined.answers.map(asAcquireAnswer),
    })
    return { tag: 'queued', askAgainMs: answer?.tag === 'queued' ? answer.askAgainMs : 1 }
  }

  /** The ticket has no quorum. Throws if too few servers answered to be certain of that. */
  #lost(tally: ServerTally): RenewAnswer {
    const { servers, majority, tickets } = this.#quorum
    const { answers } = tally
    const unknown = servers.length - answers.filter((answer) => answer !== undefined).length
    if (count(answers, 'held') + count(answers, 'queued') + unknown >= majority)
      throw tooFewError(this.#quorum, tally, this.#ticket.key)
    // The engine asks again for a waiter, under the same id, so that it keeps its places in the queues.
    if (this.#record.fence === undefined && this.#ticket.patienceMs > 0) return GONE
    // The votes that the holder still has on other servers must not block other tickets.
    for (const server of servers) if (answers[server.index]?.tag !== 'gone') withdraw(server, this.#ticket)
    tickets.end(this.#ticket.id)
    return GONE
  }

  #evicted(gone: Gone): RenewAnswer {
    this.#quorum.tickets.end(this.#ticket.id)
    // Also from servers that the eviction did not reach.
    for (const server of this.#quorum.servers) withdraw(server, this.#ticket)
    return gone
  }

  /** How many votes count for a new holder: all but those of forgetful servers. */
  #counting({ answers }: ServerTally): number {
    const { servers } = this.#quorum
    return answers.filter((answer, index) => answer?.tag === 'held' && servers[index]?.votesCount === true)
      .length
  }

  #where({ answers }: ServerTally, tag: ServerAnswer['tag']): readonly RedlockServer[] {
    return this.#quorum.servers.filter((server) => answers[server.index]?.tag === tag)
  }

  /** Sends an acquire to some servers, and puts their answers in the place of their earlier ones. */
  async #ask(servers: readonly RedlockServer[], before: ServerTally, ticket: Ticket): Promise<ServerTally> {
    const record = this.#record
    return poll(
      servers,
      (server) => {
        // The ticket was released meanwhile. An acquire would undo that.
        if (record.isOver) return GONE
        // For a ticket of another process the servers that were asked stay unknown.
        if (isOurs(record)) record.acquireSentTo = withServer(record.acquireSentTo, server)
        return server.rooms.acquire(ticket)
      },
      {
        failed: (server) => {
          if (has(record.acquireSentTo, server)) record.unansweredBy = withServer(record.unansweredBy, server)
        },
        decide: ({ answers, pending, errors }) => {
          if (pending > 0) return undefined
          const merged: (ServerAnswer | undefined)[] = before.answers.map(
            (answer, index) => answers[index] ?? answer,
          )
          for (const server of servers)
            if (answers[server.index] === undefined) merged[server.index] = undefined
          return { answers: merged, pending: 0, errors: [...before.errors, ...errors] }
        },
      },
    )
  }
}

function count(answers: readonly (ServerAnswer | undefined)[], tag: ServerAnswer['tag']): number {
  let number = 0
  for (const answer of answers) if (answer?.tag === tag) number += 1
  return number
}

/** A renewal does not report how many are ahead, and the answer to it does not need that. */
function asAcquireAnswer(answer: ServerAnswer | undefined): AcquireAnswer | undefined {
  return answer?.tag === 'queued' ? { ahead: 0, ...answer } : answer
}

function votesOf({ servers }: Quorum, answers: readonly (ServerAnswer | undefined)[]): readonly Vote[] {
  return servers.flatMap((server) => {
    const answer = answers[server.index]
    return answer?.tag === 'held' ? [{ server, fence: answer.fence }] : []
  })
}

function isEviction(answer: ServerAnswer | undefined): answer is Gone {
  return answer?.tag === 'gone' && answer.evicted
}
