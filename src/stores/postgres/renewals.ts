import type { RenewAnswer, Ticket } from '../../contract/store.ts'
import { isHoldfastError } from '../../errors.ts'
import { renewBeside, UnansweredJoins } from '../unanswered-joins.ts'
import type { RenewalPlan, WaitGroup, WaitGroups } from '../wait-groups.ts'
import { arraysOf } from './arrays.ts'
import type { PostgresStatements } from './statements.ts'

/** The part of the store that renewals use. */
export interface PostgresRenewalHost {
  readonly groups: WaitGroups
  readonly statements: PostgresStatements
  /** Makes a call whose answer has `count` lines, and follows the lines behind them. Adds the parameters about this process. */
  readonly ask: (
    statement: string,
    parameters: readonly string[],
    count: number,
  ) => Promise<readonly string[]>
  readonly read: (line: string) => RenewAnswer
  /** Whether an error says that a room holds what Holdfast never wrote. */
  readonly isDamage: (error: unknown) => boolean
  /** Whether an error says that a call was ended by its time limit. */
  readonly isOverdue: (error: unknown) => boolean
  /** Which of these keys have a room that one session has kept locked for a while. `keys`: an array in SQL. */
  readonly takenOf: (keys: string) => Promise<ReadonlySet<string>>
}

/**
 * Asks about leases one by one, and about the waiters of one key as groups. A renewal makes one call after the other, so that acquire
 * and release have the other connections.
 */
export class PostgresRenewals {
  readonly #host: PostgresRenewalHost
  /** The questions that the next call about groups asks. */
  #gathered = new Map<WaitGroup, PostgresGroupQuestion>()
  /** How many calls about groups are under way. More than one only if the others have no answer for a while. */
  #calls = 0
  /** When the newest of them began, by `performance.now()`. */
  #calledAt = 0
  readonly #joins = new UnansweredJoins<readonly RenewAnswer[]>(LATE_MS)
  /** When the calls about single tickets that are under way began, the oldest first. */
  readonly #sent = new Map<readonly Ticket[], number>()
  /** The last of these calls that failed because a room stayed locked. */
  #overdue: { readonly at: number; readonly error?: unknown } = { at: Number.NEGATIVE_INFINITY }

  constructor(host: PostgresRenewalHost) {
    this.#host = host
  }

  renew(asked: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return renewBeside(this.#joins, asked, (tickets) => this.#renewAsPlanned(tickets))
  }

  async #renewAsPlanned(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const plan = this.#host.groups.plan(tickets)
    const renewal: PostgresRenewal = { tickets, answers: new Array(tickets.length) }
    if (plan === undefined) await this.#askEach(renewal, [...tickets.keys()])
    else await this.#askAsPlanned(renewal, plan)
    // Of some of the tickets the caller knows enough, and asks about the others again: then these get the error.
    const { at, error } = this.#overdue
    if (performance.now() - at < OVERDUE_MS && renewal.answers.every((one) => one === undefined)) throw error
    return renewal.answers
  }

  /** If the server goes away after the questions about single tickets, the places of the waiters in groups stay empty. */
  async #askAsPlanned(renewal: PostgresRenewal, { groups, crowds, single }: RenewalPlan): Promise<void> {
    const { least } = this.#host.groups
    const isRound = renewal.tickets.length >= LEAST_OF_ROUND
    const alone = [...single]
    const together: (readonly [WaitGroup, readonly number[]])[] = []
    for (const [group, places] of groups) {
      // A waiter that was woken has left its group, so the question is about it alone. In a round, a few waiters are the rest of a
      // group that another batch asks about.
      if (places.length >= least || isRound) together.push([group, places])
      else {
        group.isOver = true
        alone.push(...places)
      }
    }
    // Leases first: no group is as urgent.
    await this.#askEach(renewal, alone)
    try {
      await this.#askAboutCrowds(renewal, together, new Map(crowds))
    } catch (error) {
      // A refusal has to reach the waiters. They give up, and the next round renews the leases.
      if (alone.length === 0 || !isHoldfastError(error, 'store-unavailable')) throw error
    }
  }

  async #askAboutCrowds(
    renewal: PostgresRenewal,
    together: readonly (readonly [WaitGroup, readonly number[]])[],
    toJoin: Map<string, readonly number[]>,
  ): Promise<void> {
    const asked = await Promise.allSettled(
      together.map(async ([group, places]) => {
        if (await this.#askTogether(renewal, group, places)) return
        toJoin.set(group.key, [...(toJoin.get(group.key) ?? []), ...places])
      }),
    )
    for (const one of asked) if (one.status === 'rejected') throw one.reason
    // Waiters of several groups that have changed become one group.
    const alone: number[] = []
    for (const all of toJoin.values()) {
      // Meanwhile another renewal may have begun to make groups of some of them.
      const places = all.filter((at) => this.#joins.answerTo(renewal.tickets[at] as Ticket) === undefined)
      if (places.length < this.#host.groups.least) alone.push(...places)
      else await this.#join(renewal, places)
    }
    await this.#askEach(renewal, alone)
  }

  async #askEach(renewal: PostgresRenewal, places: readonly number[]): Promise<void> {
    for (let start = 0; start < places.length; start += MOST_RENEWALS)
      await this.#askBesideTaken(renewal, places.slice(start, start + MOST_RENEWALS))
  }

  /**
   * A call locks the rooms of all its tickets, in a fixed order. If another session keeps one of them locked, the call waits, keeps the
   * rooms that come before, and fails in the end. So then the tickets of such rooms stay without an answer, and the others are renewed.
   */
  async #askBesideTaken(renewal: PostgresRenewal, places: readonly number[]): Promise<void> {
    const free = this.#isDelayed(renewal, places) ? await this.#besideTaken(renewal, places) : places
    try {
      await this.#askPart(renewal, free)
    } catch (error) {
      if (!this.#host.isOverdue(error)) throw error
      this.#overdue = { at: performance.now(), error }
      const others = await this.#besideTaken(renewal, free)
      if (others.length === free.length) throw error
      await this.#askPart(renewal, others)
    }
  }

  /**
   * Whether an earlier call is late, or failed a moment ago. Then the next one would wait for the same room. A waiter with a short ttl
   * asks again before a call is late.
   */
  #isDelayed({ tickets }: PostgresRenewal, places: readonly number[]): boolean {
    const now = performance.now()
    const [oldest = now] = this.#sent.values()
    const { at } = this.#overdue
    if (now - oldest > LATE_MS || now - at < OVERDUE_MS) return true
    if (now - oldest < SLOW_MS) return false
    const asked = new Set(places.map((place) => tickets[place]?.id))
    return [...this.#sent.keys()].some((open) => open.some(({ id }) => asked.has(id)))
  }

  async #besideTaken({ tickets }: PostgresRenewal, places: readonly number[]): Promise<readonly number[]> {
    const keyAt = (place: number): string => (tickets[place] as Ticket).key
    const [keys = '{}'] = arraysOf(
      places.map((place) => tickets[place] as Ticket),
      ['key'],
    )
    const taken = await this.#host.takenOf(keys)
    return places.filter((place) => !taken.has(keyAt(place)))
  }

  async #askPart({ tickets, answers }: PostgresRenewal, places: readonly number[]): Promise<void> {
    if (places.length === 0) return
    const asked = places.map((place) => tickets[place] as Ticket)
    const terms = arraysOf(asked, ['key', 'id', 'ttlMs', 'acceptMs', 'patienceMs', 'minHoldMs'])
    this.#sent.set(asked, performance.now())
    const lines = await this.#host.ask(this.#host.statements.renew, terms, places.length).finally(() => {
      this.#sent.delete(asked)
    })
    for (const [index, place] of places.entries())
      answers[place] = this.#read(tickets[place] as Ticket, lines[index])
  }

  /** Asks for all waiters of a group at once. False if the group is over: then there are no answers. */
  async #askTogether(
    { tickets, answers }: PostgresRenewal,
    group: WaitGroup,
    places: readonly number[],
  ): Promise<boolean> {
    group.open += 1
    const answer = await this.#gather(group).finally(() => {
      group.open -= 1
    })
    if (answer === undefined) {
      group.isOver = true
      return false
    }
    const { ofAll, ofHead, headId } = answer
    for (const place of places) answers[place] = tickets[place]?.id === headId ? ofHead : ofAll
    return true
  }

  /** Asks about a group in the next call about groups: the batches of a round have parts of the same groups. */
  #gather(group: WaitGroup): Promise<GroupAnswer | undefined> {
    const question = this.#gathered.get(group) ?? newQuestion(group)
    this.#gathered.set(group, question)
    // A call that hangs must not hold up the questions behind it: another connection may answer them.
    const isLate = performance.now() - this.#calledAt > LATE_MS && this.#calls < MOST_CALLS
    if (this.#calls === 0 || isLate) void this.#askAboutGathered()
    return question.answer
  }

  async #askAboutGathered(): Promise<void> {
    this.#calls += 1
    this.#calledAt = performance.now()
    // The other batches of this tick have not gathered their questions yet.
    await Promise.resolve()
    while (this.#gathered.size > 0) {
      const questions = [...this.#gathered.values()].slice(0, MOST_GROUPS)
      for (const { group } of questions) this.#gathered.delete(group)
      this.#calledAt = performance.now()
      await this.#askAbout(questions)
    }
    this.#calls -= 1
  }

  /** Never rejects. If a damaged room fails the call, each question is asked alone, so that only those about the room fail. */
  async #askAbout(questions: readonly PostgresGroupQuestion[]): Promise<void> {
    try {
      const groups = questions.map(({ group: { key, name, one } }) => ({ ...one, key, name }))
      const terms = arraysOf(groups, ['key', 'name', 'acceptMs', 'patienceMs'])
      const lines = await this.#host.ask(this.#host.statements.renewGroups, terms, questions.length)
      const told = questions.map((_, index) => this.#readGroup(lines[index] ?? ''))
      for (const [index, { resolve }] of questions.entries()) resolve(told[index])
    } catch (error) {
      if (questions.length > 1 && this.#host.isDamage(error))
        for (const question of questions) await this.#askAbout([question])
      else for (const { reject } of questions) reject(error)
    }
  }

  async #join(renewal: PostgresRenewal, places: readonly number[]): Promise<void> {
    const joining = places.map((place) => renewal.tickets[place] as Ticket)
    const answers = this.#makeGroups(renewal, places).then(() => renewal.answers)
    const ended = this.#joins.sent(joining, () => answers)
    let isAnswered = false
    try {
      await answers
      isAnswered = true
    } finally {
      ended({ isAnswered })
    }
  }

  /** The rows of the waiters have the other terms. So readers and writers may be in one group. */
  async #makeGroups(renewal: PostgresRenewal, places: readonly number[]): Promise<void> {
    const alike = new Map<string, number[]>()
    for (const place of places) {
      const { ttlMs, acceptMs, patienceMs, minHoldMs } = renewal.tickets[place] as Ticket
      const terms = `${ttlMs} ${acceptMs} ${patienceMs} ${minHoldMs}`
      const onTerms = alike.get(terms)
      if (onTerms === undefined) alike.set(terms, [place])
      else onTerms.push(place)
    }
    const alone: number[] = []
    for (const onTerms of alike.values()) {
      for (let start = 0; start < onTerms.length; start += MOST_IN_GROUP) {
        const part = onTerms.slice(start, start + MOST_IN_GROUP)
        if (part.length < this.#host.groups.least) alone.push(...part)
        else await this.#makeGroup(renewal, part)
      }
    }
    await this.#askEach(renewal, alone)
  }

  async #makeGroup({ tickets, answers }: PostgresRenewal, places: readonly number[]): Promise<void> {
    const { groups, statements, ask } = this.#host
    const one = tickets[places[0] as number] as Ticket
    const group = groups.newGroup(one)
    const asked = places.map((place) => tickets[place] as Ticket)
    const [ids = '{}'] = arraysOf(asked, ['id'])
    const terms = [one.ttlMs, one.acceptMs, one.patienceMs, one.minHoldMs].map(String)
    const lines = await ask(statements.joinGroup, [one.key, group.name, ids, ...terms], asked.length)
    for (const [index, place] of places.entries()) {
      const ticket = tickets[place] as Ticket
      const answer = this.#read(ticket, lines[index])
      if (answer.tag === 'queued') groups.join(ticket, group)
      answers[place] = answer
    }
  }

  #read(ticket: Ticket, line = ''): RenewAnswer {
    const answer = this.#host.read(line)
    if (answer.tag !== 'queued') this.#host.groups.ended(ticket)
    return answer
  }

  #readGroup(line: string): GroupAnswer | undefined {
    if (line === '-') return undefined
    const [, ofAll = line, headAskAgainMs, headId] = GROUP_WITH_HEAD.exec(line) ?? []
    const storeMs = ofAll.slice(ofAll.indexOf(' ') + 1)
    const { read } = this.#host
    const answer = read(ofAll)
    const ofHead = headId === undefined ? answer : read(`q${headAskAgainMs} ${storeMs}`)
    return { ofAll: answer, ofHead, headId }
  }
}

/** A list of tickets, and the answers at the places of the tickets. */
interface PostgresRenewal {
  readonly tickets: readonly Ticket[]
  readonly answers: RenewAnswer[]
}

interface GroupAnswer {
  readonly ofAll: RenewAnswer
  /** The head of the queue asks sooner. */
  readonly ofHead: RenewAnswer
  /** Undefined if the head is not in the group. */
  readonly headId: string | undefined
}

/** A question whether the waiters of a group wait. */
interface PostgresGroupQuestion {
  readonly group: WaitGroup
  answer: Promise<GroupAnswer | undefined>
  resolve: (answer: GroupAnswer | undefined) => void
  reject: (error: unknown) => void
}

function newQuestion(group: WaitGroup): PostgresGroupQuestion {
  const question = { group } as PostgresGroupQuestion
  question.answer = new Promise((resolve, reject) => {
    question.resolve = resolve
    question.reject = reject
  })
  return question
}

const GROUP_WITH_HEAD = /^(q\d+ \d+) (\d+) (.+)$/

/** Renewals are not urgent, and are cheaper together. */
const MOST_RENEWALS = 500
/** So many waiters join a group in a few milliseconds. */
const MOST_IN_GROUP = 250
const MOST_GROUPS = 100
/** A call usually takes a few milliseconds. The engine asks again after two seconds without an answer, or sooner if a ttl is short. */
const LATE_MS = 1000
const SLOW_MS = 100
/** For so long after a call that failed the next ones first ask which rooms are locked. */
const OVERDUE_MS = 10_000
/** Of two connections, which are the default. */
const MOST_CALLS = 2
/** A batch of at least so many tickets is part of a round of the renewal loop. The loop begins with batches of 64. */
const LEAST_OF_ROUND = 50
