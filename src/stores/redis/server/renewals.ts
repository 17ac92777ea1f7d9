import { GONE, type RenewAnswer, type Ticket } from '../../../contract/store.ts'
import { type Batch, batchesOf } from '../../batches.ts'
import { renewBeside, UnansweredJoins } from '../../unanswered-joins.ts'
import { MOST_IN_GROUP, sameTerms, type WaitGroup, type WaitGroups } from '../../wait-groups.ts'
import { renewAnswer } from './answers.ts'
import { settleMost } from './settle-most.ts'
import type { Partition, Topology } from './topology.ts'

/** The part of the other requests that renewals use. */
export interface RenewalHost {
  readonly topology: Topology
  readonly groups: WaitGroups | undefined
  /** The arguments of renew.lua without the ids. `group`: see {@link GrantTerms.addForRenew}. */
  argsFor(partition: Partition, tickets: Batch<Ticket>, group?: string): string[]
  /** The line of each ticket in a reply. */
  linesOf(reply: unknown, asked: readonly Ticket[]): readonly string[]
}

/** The renewals of a store: leases one by one, and the waiters of one key as groups. */
export class Renewals {
  readonly #host: RenewalHost
  /** The questions that the next request about groups asks. */
  readonly #gathered = new Map<WaitGroup, GroupQuestion>()
  readonly #joins = new UnansweredJoins<readonly RenewAnswer[]>(SILENCE_MS)
  /** The group that was begun a moment ago. */
  #lastBegun: WaitGroup | undefined

  constructor(host: RenewalHost) {
    this.#host = host
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const [first, ...more] = this.#host.topology.divide(tickets)
    if (first === undefined) return []
    return more.length === 0 ? this.#renewIn(...first) : this.#renewInEach(tickets)
  }

  /**
   * A silent server must not cost the leases on the others. Once another one has answered, a silent one gets only a moment
   * more. The answers of its tickets then stay empty.
   */
  async #renewInEach(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = new Array(tickets.length)
    const numbered = tickets.map((ticket, index) => ({ key: ticket.key, ticket, index }))
    const renewals = this.#host.topology.divide(numbered).map(async ([partition, there]) => {
      const answered = await this.#renewIn(
        partition,
        there.map(({ ticket }) => ticket),
      )
      for (const [at, { index }] of there.entries()) answers[index] = answered[at] as RenewAnswer
    })
    await settleMost(renewals)
    return answers
  }

  #renewIn(partition: Partition, asked: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return renewBeside(this.#joins, asked, (tickets) => this.#renewAsPlanned(partition, tickets))
  }

  async #renewAsPlanned(partition: Partition, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const groups = this.#host.groups
    const plan = groups?.plan(tickets)
    if (groups === undefined || plan === undefined) return this.#renewEach(partition, tickets)
    const answers: RenewAnswer[] = new Array(tickets.length)
    const renew = async (
      places: readonly number[],
      renewal: (tickets: readonly Ticket[]) => Promise<readonly RenewAnswer[]>,
    ): Promise<void> => {
      const answered = await renewal(places.map((at) => tickets[at] as Ticket))
      for (const [index, at] of places.entries()) answers[at] = answered[index] as RenewAnswer
    }
    const crowds = new Map(plan.crowds)
    const others = renew(plan.single, (alone) => this.#renewEach(partition, alone))
    const isRound = tickets.length >= LEAST_OF_ROUND
    const inGroups = Array.from(plan.groups, ([group, places]) =>
      renew(places, async (waiters) => {
        const answered = await this.#renewGroup(partition, waiters, { groups, group, isRound })
        if (group.isOver) crowds.set(group.key, [...(crowds.get(group.key) ?? []), ...places])
        return answered
      }),
    )
    await Promise.all([others, ...inGroups])
    // Waiters of several groups that have changed become one group.
    await Promise.all(
      Array.from(crowds.values(), (places) =>
        // While the groups were asked about, another renewal may have begun to make groups of some of them.
        renew(this.#notJoining(places, tickets), (waiters) =>
          waiters.length < groups.least
            ? this.#renewEach(partition, waiters)
            : this.#renewCrowd(partition, waiters, groups),
        ),
      ),
    )
    return answers
  }

  #notJoining(places: readonly number[], tickets: readonly Ticket[]): readonly number[] {
    return places.filter((at) => this.#joins.answerTo(tickets[at] as Ticket) === undefined)
  }

  /** Asks for all waiters of a group at once. If the group turns out to be over, there are no answers. */
  async #renewGroup(
    partition: Partition,
    waiters: readonly Ticket[],
    { groups, group, isRound }: GroupPart,
  ): Promise<readonly RenewAnswer[]> {
    // A waiter that was woken has left its group, so the question is about it alone. In a round, a few waiters are the rest of a group
    // that another batch asks about.
    if (waiters.length < groups.least && !isRound && !this.#gathered.has(group))
      return this.#renewBatch(partition, waiters as Batch<Ticket>, group.name)
    group.open += 1
    const answer = await this.#askAbout(group).finally(() => {
      group.open -= 1
    })
    if (answer !== undefined) return waiters.map(() => answer)
    group.isOver = true
    return []
  }

  /** Asks about a group in the next request about groups. Undefined: the group is over. */
  #askAbout(group: WaitGroup): Promise<RenewAnswer | undefined> {
    const gathered = this.#gathered.get(group)
    if (gathered !== undefined) return gathered.answer
    if (this.#gathered.size === 0) setTimeout(this.#askAboutGathered, GATHER_MS).unref()
    const question = { key: group.key, group } as GroupQuestion
    question.answer = new Promise((resolve, reject) => {
      question.resolve = resolve
      question.reject = reject
    })
    this.#gathered.set(group, question)
    return question.answer
  }

  readonly #askAboutGathered = (): void => {
    const questions = [...this.#gathered.values()]
    this.#gathered.clear()
    try {
      for (const [partition, there] of this.#host.topology.divide(questions))
        for (const batch of batchesOf(there, { same: onSameTerms, most: MOST_GROUPS }))
          void this.#askInOne(partition, batch)
    } catch (error) {
      for (const { reject } of questions) reject(error)
    }
  }

  async #askInOne(partition: Partition, batch: Batch<GroupQuestion>): Promise<void> {
    try {
      const tickets = batch.map(({ group }) => group.one)
      const args = this.#host.argsFor(partition, tickets as unknown as Batch<Ticket>, '*')
      for (const { group } of batch) args.push(group.name)
      const lines = await this.#runRenew(partition, args, tickets)
      for (const [index, { resolve }] of batch.entries()) {
        const text = lines[index] as string
        resolve(text === '-' ? undefined : this.#parseRenew(partition, text))
      }
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }

  /** Asks about waiters for one key one by one, and makes them a group. */
  async #renewCrowd(
    partition: Partition,
    waiters: readonly Ticket[],
    groups: WaitGroups,
  ): Promise<readonly RenewAnswer[]> {
    const ofGroups = batchesOf(waiters, { same: sameTerms, most: MOST_IN_GROUP })
    const answers = ofGroups.flatMap((ofGroup) => {
      const group = this.#groupFor(ofGroup, groups)
      return batchesOf(ofGroup, { same: sameTerms, most: MOST_JOINING }).map((batch) => {
        const begins = group.asked === 0
        group.asked += batch.length
        return this.#renewJoining(partition, batch, { groups, group, begins })
      })
    })
    return (await Promise.all(answers)).flat()
  }

  /** The first rounds of the renewal loop ask in small batches. So waiters that came together are one group, and not one for each batch. */
  #groupFor(waiters: Batch<Ticket>, groups: WaitGroups): WaitGroup {
    const [one] = waiters
    const last = this.#lastBegun
    if (
      last !== undefined &&
      !last.isOver &&
      last.key === one.key &&
      sameTerms(last.one, one) &&
      last.asked + waiters.length <= MOST_IN_GROUP
    )
      return last
    const group = groups.newGroup(one)
    this.#lastBegun = group
    // By a timer, because the batches of one turn belong together however long that turn takes.
    setTimeout(() => {
      if (this.#lastBegun === group) this.#lastBegun = undefined
    }, GATHER_MS).unref()
    return group
  }

  async #renewJoining(
    partition: Partition,
    batch: Batch<Ticket>,
    { groups, group, begins }: JoiningPart,
  ): Promise<readonly RenewAnswer[]> {
    const answers = this.#renewBatch(partition, batch, `${begins ? '+' : '='}${group.name}`)
    const ended = this.#joins.sent(batch, () => answers)
    try {
      const answered = await answers
      ended({ isAnswered: true })
      for (const [index, ticket] of batch.entries())
        if (answered[index]?.tag === 'queued') groups.join(ticket, group)
      return answered
    } catch (error) {
      ended({ isAnswered: false })
      group.isOver = true
      throw error
    }
  }

  async #renewEach(partition: Partition, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const batches = batchesOf(tickets, { same: sameTerms, most: MOST_RENEWALS })
    const answers = await Promise.all(batches.map((batch) => this.#renewBatch(partition, batch)))
    return answers.length === 1 ? (answers[0] ?? []) : answers.flat()
  }

  async #renewBatch(
    partition: Partition,
    tickets: Batch<Ticket>,
    group?: string,
  ): Promise<readonly RenewAnswer[]> {
    const args = this.#host.argsFor(partition, tickets, group)
    for (const { id } of tickets) args.push(id)
    const lines = await this.#runRenew(partition, args, tickets)
    return lines.map((text, index) => {
      const answer = this.#parseRenew(partition, text)
      if (answer.tag !== 'queued') this.#host.groups?.ended(tickets[index] as Ticket)
      return answer
    })
  }

  async #runRenew(
    partition: Partition,
    args: string[],
    asked: readonly Ticket[],
  ): Promise<readonly string[]> {
    try {
      return this.#host.linesOf(await partition.run(this.#host.topology.scripts.renew, args), asked)
    } catch (error) {
      throw this.#host.topology.failure(error)
    }
  }

  /** A key that something else uses must not stop the renewal of the others. */
  #parseRenew(partition: Partition, text: string): RenewAnswer {
    if (text[0] === 'q') noticeWaiter(partition, text)
    return text[0] === '?' ? GONE : renewAnswer(text)
  }
}

interface GroupPart {
  readonly groups: WaitGroups
  readonly group: WaitGroup
  /** Whether the batch is of those that are due, and not of a few that were woken. */
  readonly isRound: boolean
}

interface JoiningPart {
  readonly groups: WaitGroups
  readonly group: WaitGroup
  /** Whether these are the first waiters of the group. */
  readonly begins: boolean
}

/** A question whether the waiters of a group wait. */
interface GroupQuestion {
  readonly key: string
  readonly group: WaitGroup
  answer: Promise<RenewAnswer | undefined>
  resolve: (answer: RenewAnswer | undefined) => void
  reject: (error: unknown) => void
}

function onSameTerms(one: GroupQuestion, other: GroupQuestion): boolean {
  return sameTerms(one.group.one, other.group.one)
}

/** The line of a waiter ends with the time after which it asks again, and the server's time. */
export function noticeWaiter(partition: Partition, line: string): void {
  partition.awaited?.(Number(line.split(' ').at(-2)?.replace('q', '')))
}

/** Renewals can wait, and are cheaper the more of them share a call. */
const MOST_RENEWALS = 500
/** A waiter that joins a group costs the server about 30 µs. */
const MOST_JOINING = 50
/** A script that is asked about so many groups keeps the server busy for less than a millisecond. */
const MOST_GROUPS = 50
/** The server answers in order, and takes seconds for 100,000 waiters that come together on a busy machine. */
export const SILENCE_MS = 3000
/** A batch of at least so many tickets is part of a round of the renewal loop. */
const LEAST_OF_ROUND = 100
/**
 * How long a question about a group waits for further questions. So long a new group takes in more waiters, too. The renewal loop asks about
 * at most 500 waiters at once.
 */
const GATHER_MS = 20
