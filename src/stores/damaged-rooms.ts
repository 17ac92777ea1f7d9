import type { Answer, RenewAnswer, Ticket } from '../contract/store.ts'
import { StoreError } from '../errors.ts'

/** How a store asks about tickets together, and which of its errors say that a room holds what Holdfast never wrote. */
export interface RenewTogether {
  ask(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]>
  isDamage(error: unknown): boolean
}

/**
 * Renews tickets together, and leaves the place of a ticket empty if its room is damaged. One request asks about hundreds of leases.
 * If another program has written to the room of one of them, the whole request fails, and all of these leases would be lost.
 *
 * After such a failure it asks about each half alone, then about each half of the half that fails. So a damaged room costs about
 * twenty requests among a thousand tickets. The caller gets the error if no ticket has an answer, or if a hundred requests fail.
 */
export function renewBesideDamage(
  together: RenewTogether,
  tickets: readonly Ticket[],
): Answer<readonly RenewAnswer[]> {
  const recover = (error: unknown): Promise<readonly RenewAnswer[]> => {
    if (tickets.length < 2 || !together.isDamage(error)) throw error
    return renewInParts(together, tickets)
  }
  try {
    const answers = together.ask(tickets)
    return answers instanceof Promise ? answers.catch(recover) : answers
  } catch (error) {
    return recover(error)
  }
}

/** Whether an error is about what the store has for one key, and so says nothing about the store and other keys. */
export function isDamagedRoom(error: unknown): boolean {
  return error instanceof StoreError && error.code === 'store-refused' && error.key !== undefined
}

async function renewInParts(
  { ask, isDamage }: RenewTogether,
  tickets: readonly Ticket[],
): Promise<readonly RenewAnswer[]> {
  const answers: RenewAnswer[] = new Array(tickets.length)
  const parts = halvesOf({ from: 0, to: tickets.length })
  let failures = 0
  let failure: unknown
  let isAnyAnswered = false
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const { from, to } = part
    try {
      const told = await ask(tickets.slice(from, to))
      for (const [index, answer] of told.entries()) answers[from + index] = answer
      isAnyAnswered = true
    } catch (error) {
      failures += 1
      failure = error
      // The answers so far count. The engine asks about the other tickets again.
      if (!isDamage(error) || failures === MOST_FAILURES) break
      if (to - from > 1) parts.push(...halvesOf(part))
    }
  }
  if (!isAnyAnswered) throw failure
  return answers
}

/** So many requests for each renewal would be more harm than help. */
const MOST_FAILURES = 100

interface Part {
  readonly from: number
  readonly to: number
}

function halvesOf({ from, to }: Part): Part[] {
  const middle = (from + to) >> 1
  return [
    { from, to: middle },
    { from: middle, to },
  ]
}
