import type { RenewAnswer, Ticket } from '../contract/store.ts'

/**
 * The questions that put waiters into groups, and that the server has not answered yet.
 *
 * A crowd may keep a server busy for longer than the engine waits before it asks again. A second question about a waiter would then
 * take the waiter out of the group that it has just joined. That ends the group, so the server is asked about each of its waiters, and is
 * behind even more: on a busy machine 100,000 waiters never came to rest. So as long as the server answers such questions, however
 * late, each waiter is asked about once.
 */
export class UnansweredJoins<Answer> {
  readonly #byKey = new Map<string, JoinsOfKey<Answer>>()
  readonly #silenceMs: number

  /** `silenceMs`: after so long without an answer a question may be asked again. Another connection or server may answer that one. */
  constructor(silenceMs: number) {
    this.#silenceMs = silenceMs
  }

  get isEmpty(): boolean {
    return this.#byKey.size === 0
  }

  /** The answer to the question about this waiter, if the server seems to be only behind. */
  answerTo(ticket: Ticket): Promise<Answer> | undefined {
    const joins = this.#byKey.get(ticket.key)
    const question = joins?.questions.get(ticket)
    if (joins === undefined || question === undefined) return undefined
    const now = performance.now()
    const isSilent = now - Math.max(question.sentAt, joins.heardAt) > this.#silenceMs
    // Another connection may bring the answers, while that of this question hangs.
    const isStuck = now - question.sentAt > MOST_SILENCES * this.#silenceMs
    return isSilent || isStuck ? undefined : question.answer
  }

  /** All tickets are for one key. Call the result when the server has answered, or the question has failed. */
  sent(
    tickets: readonly Ticket[],
    answerOf: (index: number) => Promise<Answer>,
  ): (outcome: JoinOutcome) => void {
    const [{ key }] = tickets as readonly [Ticket]
    const joins = this.#byKey.get(key) ?? { questions: new Map(), heardAt: 0 }
    this.#byKey.set(key, joins)
    const sentAt = performance.now()
    const questions = tickets.map((ticket, index) => {
      const question = { answer: answerOf(index), sentAt }
      joins.questions.set(ticket, question)
      return question
    })
    return ({ isAnswered }) => {
      if (isAnswered) joins.heardAt = performance.now()
      for (const [index, ticket] of tickets.entries())
        if (joins.questions.get(ticket) === questions[index]) joins.questions.delete(ticket)
      if (joins.questions.size === 0 && this.#byKey.get(key) === joins) this.#byKey.delete(key)
    }
  }
}

export interface JoinOutcome {
  readonly isAnswered: boolean
}

interface JoinsOfKey<Answer> {
  readonly questions: Map<Ticket, { readonly answer: Promise<Answer>; readonly sentAt: number }>
  /** When the server last answered such a question, by `performance.now()`. */
  heardAt: number
}

/** After so many silences a question may be asked again, whatever the server answers to others. */
const MOST_SILENCES = 4

/**
 * Renews the tickets that no earlier question is about. The places of the others stay empty, so the engine asks about them again: a message
 * that came meanwhile may have told more than the earlier question will. If there are no others, this waits for the earlier answers first.
 */
export async function renewBeside(
  joins: UnansweredJoins<readonly RenewAnswer[]>,
  tickets: readonly Ticket[],
  renew: (tickets: readonly Ticket[]) => Promise<readonly RenewAnswer[]>,
): Promise<readonly RenewAnswer[]> {
  if (joins.isEmpty) return renew(tickets)
  const earlier = tickets.map((ticket) => joins.answerTo(ticket))
  const others = [...tickets.keys()].filter((at) => earlier[at] === undefined)
  if (others.length === tickets.length) return renew(tickets)
  const answers: RenewAnswer[] = new Array(tickets.length)
  if (others.length === 0) {
    await Promise.allSettled(new Set(earlier))
    return answers
  }
  const renewed = await renew(others.map((at) => tickets[at] as Ticket))
  for (const [index, at] of others.entries()) answers[at] = renewed[index] as RenewAnswer
  return answers
}
