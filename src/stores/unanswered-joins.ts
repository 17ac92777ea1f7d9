import type { RenewAnswer, Ticket } from '../contract/store.ts'

/**
 * The questions that put waiters into groups, and that the server has not answered yet.
 *
 * A crowd may keep a server busy for longer than the engine waits before it asks again. A second question about a waiter would then
 * take the waiter out of the group that it has just joined. That ends the group, so the server is asked about each of its waiters, and is
 * behind even more: on a busy machine 100,000 waiters never came to rest. So as long as the server answers such questions, however
 * late, each waiter is asked about once.
 */
export class UnansweredJoins<Question> {
  readonly #byKey = new Map<string, JoinsOfKey<Question>>()

  get isEmpty(): boolean {
    return this.#byKey.size === 0
  }

  /** The question about this waiter that the server will answer soon. */
  questionAbout(ticket: Ticket): Question | undefined {
    const joins = this.#byKey.get(ticket.key)
    if (joins === undefined || performance.now() - joins.heardAt > SILENCE_MS) return undefined
    return joins.questions.get(ticket)
  }

  /** All tickets are for one key. */
  sent(tickets: readonly Ticket[], questionOf: (index: number) => Question): void {
    const [{ key }] = tickets as readonly [Ticket]
    const joins = this.#byKey.get(key) ?? { questions: new Map(), heardAt: performance.now() }
    this.#byKey.set(key, joins)
    for (const [index, ticket] of tickets.entries()) joins.questions.set(ticket, questionOf(index))
  }

  /** The server has answered a question about these tickets, or the question has failed. */
  ended(tickets: readonly Ticket[], { isAnswered }: { readonly isAnswered: boolean }): void {
    const [{ key }] = tickets as readonly [Ticket]
    const joins = this.#byKey.get(key)
    if (joins === undefined) return
    if (isAnswered) joins.heardAt = performance.now()
    for (const ticket of tickets) joins.questions.delete(ticket)
    if (joins.questions.size === 0) this.#byKey.delete(key)
  }
}

interface JoinsOfKey<Question> {
  readonly questions: Map<Ticket, Question>
  /** When the server last answered such a question, or the first one was sent. By `performance.now()`. */
  heardAt: number
}

/** After so long without an answer a question is sent again: another connection or server may answer that one. */
const SILENCE_MS = 3000

/** A question that makes several waiters a group, and the place of one of them among the answers. */
export interface JoinQuestion {
  readonly answers: Promise<readonly RenewAnswer[]>
  readonly at: number
}

/** Renews the tickets that no earlier question is about, and waits for the answers to the earlier questions. */
export async function renewBeside(
  joins: UnansweredJoins<JoinQuestion>,
  tickets: readonly Ticket[],
  renew: (tickets: readonly Ticket[]) => Promise<readonly RenewAnswer[]>,
): Promise<readonly RenewAnswer[]> {
  if (joins.isEmpty) return renew(tickets)
  const questions = tickets.map((ticket) => joins.questionAbout(ticket))
  const others = [...tickets.keys()].filter((at) => questions[at] === undefined)
  if (others.length === tickets.length) return renew(tickets)
  const answers: RenewAnswer[] = new Array(tickets.length)
  const earlier = questions.map(async (question, at) => {
    const answer = question && (await question.answers.catch(() => []))[question.at]
    // Whoever asked first is told everything else. When that question was sent is not known here, so it tells nothing of the clocks.
    if (answer?.tag === 'queued') answers[at] = { tag: 'queued', askAgainMs: answer.askAgainMs }
  })
  const [renewed] = await Promise.all([renew(others.map((at) => tickets[at] as Ticket)), ...earlier])
  for (const [index, at] of others.entries()) answers[at] = renewed[index] as RenewAnswer
  return answers
}
