import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Answer, RenewAnswer, Ticket } from '../../contract/store.ts'
import { renew, type StoreTime } from '../../law/room.ts'
import { type Batch, batchesOf } from '../batches.ts'
import { type RenewalPlan, sameTerms, type WaitGroup, type WaitGroups } from '../wait-groups.ts'
import { type Notice, type StepRequest, type StepResult, step } from './room-window.ts'
import type { SqliteStatements } from './statements.ts'
import type { TransactionWork } from './transactions.ts'

/** The part of the store that renewals use. */
export interface FileRenewalHost {
  readonly groups: WaitGroups
  /** Where this process listens; empty if it does not. */
  readonly inbox: string
  requestFor(ticket: Ticket, time: StoreTime): StepRequest
  write<A>(work: TransactionWork<StepResult<A>>): Answer<A>
}

/**
 * Asks about leases one by one, and about the waiters of one key together: one row is written for all of them. Waiters that come late
 * then all keep their places, if the file still has them. One by one, the question of the first may end the others.
 */
export class FileRenewals {
  readonly #host: FileRenewalHost

  constructor(host: FileRenewalHost) {
    this.#host = host
  }

  renew(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    const plan = this.#host.groups.plan(tickets)
    const questions = plan === undefined ? [...tickets.keys()] : this.#questionsOf(tickets, plan)
    const answers: RenewAnswer[] = new Array(tickets.length)
    const rest = this.#askSome({ tickets, answers }, questions)
    const complete = !(rest instanceof Promise) && rest.length === 0
    return complete ? answers : this.#askRest({ tickets, answers }, rest)
  }

  #questionsOf(tickets: readonly Ticket[], { groups, crowds, single }: RenewalPlan): readonly Question[] {
    const { least } = this.#host.groups
    const alone = [...single]
    const together: TogetherQuestion[] = []
    for (const [group, places] of groups) {
      // A waiter that was woken has left its group, so the question is about it alone.
      if (places.length < least) alone.push(...places)
      else together.push({ group, places: places as Batch<number> })
    }
    const onSameTerms = (one: number, other: number): boolean =>
      sameTerms(tickets[one] as Ticket, tickets[other] as Ticket)
    for (const crowd of crowds.values()) {
      for (const places of batchesOf(crowd, { same: onSameTerms, most: MOST_IN_FILE_GROUP })) {
        if (places.length < least) alone.push(...places)
        else together.push({ group: undefined, places })
      }
    }
    return [...alone.sort((one, other) => one - other), ...together]
  }

  /** Between two transactions this process and others get a turn. */
  async #askRest(renewal: FileRenewal, first: Answer<readonly Question[]>): Promise<readonly RenewAnswer[]> {
    for (let rest = await first; rest.length > 0; rest = await this.#askSome(renewal, rest)) await nextTurn()
    return renewal.answers
  }

  /** Asks as many questions as a short transaction can, at least one. Returns those that are left. */
  #askSome(renewal: FileRenewal, questions: readonly Question[]): Answer<readonly Question[]> {
    const done = this.#host.write((statements, time) => {
      const slice = new Slice(this.#host, renewal, questions)
      slice.ask(statements, time)
      return { answer: slice, notices: slice.notices }
    })
    return done instanceof Promise ? done.then((slice) => slice.finish()) : done.finish()
  }
}

/** A list of tickets, and the answers at the places of the tickets. */
interface FileRenewal {
  readonly tickets: readonly Ticket[]
  readonly answers: RenewAnswer[]
}

/** A question about one ticket, by its place; or about waiters for one key on the same terms. */
type Question = number | TogetherQuestion

interface TogetherQuestion {
  /** Undefined if the waiters are to become a group. */
  readonly group: WaitGroup | undefined
  readonly places: Batch<number>
}

/**
 * The questions of one transaction. If the transaction is rolled back, nothing that counts has changed: the answers are written again
 * or dropped, and `finish` is called after the commit.
 */
class Slice {
  readonly notices: Notice[] = []
  readonly #host: FileRenewalHost
  readonly #renewal: FileRenewal
  /** The next question is the last one. */
  readonly #open: Question[]
  readonly #joined: { readonly ticket: Ticket; readonly group: WaitGroup }[] = []
  readonly #over: WaitGroup[] = []
  readonly #ended: Ticket[] = []

  constructor(host: FileRenewalHost, renewal: FileRenewal, questions: readonly Question[]) {
    this.#host = host
    this.#renewal = renewal
    this.#open = [...questions].reverse()
  }

  ask(statements: SqliteStatements, time: StoreTime): void {
    const yieldAt = performance.now() + SLICE_MS
    do {
      const question = this.#open.pop()
      if (question === undefined) return
      if (typeof question === 'number') this.#askAlone(statements, time, question)
      else if (question.group === undefined) this.#makeGroup(statements, time, question.places)
      else this.#askGroup(statements, time, question.group, question.places)
    } while (performance.now() < yieldAt)
  }

  /** Takes note of what the file has now. Returns the questions that were not asked. */
  finish(): readonly Question[] {
    const { groups } = this.#host
    for (const { ticket, group } of this.#joined) groups.join(ticket, group)
    for (const group of this.#over) group.isOver = true
    for (const ticket of this.#ended) groups.ended(ticket)
    return this.#open.reverse()
  }

  #askAlone(statements: SqliteStatements, time: StoreTime, place: number): void {
    const ticket = this.#ticketAt(place)
    const request = this.#host.requestFor(ticket, time)
    const { answer, notices } = step(statements, request, (room, at) => renew(room, ticket, at))
    this.#renewal.answers[place] = answer
    this.notices.push(...notices)
    if (answer.tag !== 'queued') this.#ended.push(ticket)
  }

  #askGroup(statements: SqliteStatements, time: StoreTime, group: WaitGroup, places: Batch<number>): void {
    const { ms } = time
    const { key, patienceMs } = this.#ticketAt(places[0])
    const heard = statements.hearGroup.get(ms, ms + patienceMs, key, group.name, this.#host.inbox)
    if (heard !== undefined && this.#askTogether(statements, time, group, places)) return
    this.#over.push(group)
    if (places.length >= this.#host.groups.least) this.#open.push({ group: undefined, places })
    else this.#open.push(...places)
  }

  /** The waiters join in one transaction, so `changed` tells of every waiter that leaves. Those that do not wait are asked about alone. */
  #makeGroup(statements: SqliteStatements, time: StoreTime, places: Batch<number>): void {
    const { groups, inbox } = this.#host
    const { key, patienceMs } = this.#ticketAt(places[0])
    const group = groups.newGroup(this.#ticketAt(places[0]))
    const joined: number[] = []
    for (const place of places) {
      const { id } = this.#ticketAt(place)
      const waits = statements.joinGroup.get(group.name, inbox || null, key, id) !== undefined
      if (waits) joined.push(place)
      else this.#open.push(place)
    }
    const [first, ...rest] = joined
    if (first === undefined) return
    statements.addGroup.run(key, group.name, joined.length, inbox, time.ms, time.ms + patienceMs)
    if (!this.#askTogether(statements, time, group, [first, ...rest])) this.#open.push(...joined)
    else for (const place of joined) this.#joined.push({ ticket: this.#ticketAt(place), group })
  }

  /**
   * Settles the room by the question of one waiter, after the group was heard of. Its answer is that of all, besides the head of the
   * queue, which asks sooner. False if a waiter has left the group: then there are no answers.
   */
  #askTogether(
    statements: SqliteStatements,
    time: StoreTime,
    group: WaitGroup,
    places: Batch<number>,
  ): boolean {
    const [first] = places
    // The head is seldom the last one.
    const last = places.at(-1) ?? first
    const ticket = this.#ticketAt(last)
    let head: number | undefined
    const { answer, notices } = step(statements, this.#host.requestFor(ticket, time), (room, at) => {
      const ofLast = renew(room, ticket, at)
      const headId = room.queue.first?.id
      head = places.find((place) => this.#ticketAt(place).id === headId)
      if (head === undefined || head === last)
        return { answer: { ofLast: ofLast.answer, ofHead: ofLast.answer }, wakes: ofLast.wakes }
      const ofHead = renew(room, this.#ticketAt(head), at)
      return {
        answer: { ofLast: ofLast.answer, ofHead: ofHead.answer },
        wakes: [...ofLast.wakes, ...ofHead.wakes],
      }
    })
    this.notices.push(...notices)
    if (statements.wholeGroup.get(group.key, group.name) === undefined) return false
    const { answers } = this.#renewal
    answers[first] = answer.ofLast
    if (head === last && first !== last) this.#askAlone(statements, time, first)
    for (const place of places) answers[place] = answers[first]
    if (head !== undefined) answers[head] = answer.ofHead
    return true
  }

  #ticketAt(place: number): Ticket {
    return this.#renewal.tickets[place] as Ticket
  }
}

/** Enough for 200 renewals. */
const SLICE_MS = 2
/** So many waiters join a group in less than two milliseconds. */
const MOST_IN_FILE_GROUP = 250
