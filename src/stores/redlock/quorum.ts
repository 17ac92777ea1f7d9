import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedlockNode } from './node.ts'
import type { Tally } from './poll.ts'
import type { Proposals } from './proposals.ts'
import type { TicketState, Tickets } from './tickets.ts'

/** The servers together, and what all verbs need to know. */
export interface Council {
  readonly nodes: readonly RedlockNode[]
  /** More than half of them. */
  readonly quorum: number
  readonly fences: boolean
  readonly tickets: Tickets
  readonly proposals: Proposals
  /** Tells the caller that asking about a ticket is worth it. */
  wake(id: string): void
}

/**
 * One question after another about a ticket that does not hold yet. Each of them may claim a fence or give votes away: of two
 * at once one could give away what the other one counts, or agree with other servers on another fence.
 */
export function inTurn<T>(
  council: Council,
  { id }: Ticket,
  state: TicketState,
  question: () => Promise<T>,
): Promise<T> {
  const before = state.asking
  const asking = before === undefined ? question() : before.then(question, question)
  state.asking = asking
  const done = (): void => {
    if (state.asking !== asking) return
    state.asking = undefined
    const { overtaken } = state
    state.overtaken = false
    if (overtaken && !state.over && state.fence === undefined) council.wake(id)
  }
  asking.then(done, done)
  return asking
}

/** Takes back what a ticket has on a server, also if that can only be told later. */
export function withdraw(node: RedlockNode, ticket: Ticket): void {
  const { key, id, minHoldMs, ttlMs } = ticket
  node.ask<unknown>(
    () => (minHoldMs > 0 ? node.scripts.withdraw(ticket) : node.rooms.release({ key, id, cancel: false })),
    { answered: () => {}, failed: () => node.owe({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs)) },
  )
}

/** Writes the fence of a ticket down where it is not known yet, so that every quorum knows it. */
export function settle(node: RedlockNode, ticket: Ticket, state: TicketState): void {
  const { fence } = state
  if (state.over || fence === undefined || fence === NO_FENCE) return
  node.ask(() => node.claim(ticket, { fence, mode: 'settle' }), SILENT)
}

/** What a lease has whose store was told to do without. Lower than every real one. */
export const NO_FENCE = 0n

const SILENT = { answered: (): void => {}, failed: (): void => {} }

/** Too few have answered. A definite no of most of them is one; anything else may pass. */
export function tooFewError(council: Council, { errors }: Tally<unknown>, key?: string): StoreError {
  const { nodes, quorum } = council
  const refusals = errors.filter((error) => error instanceof StoreError && error.code === 'store-refused')
  if (nodes.length - refusals.length < quorum && refusals[0] instanceof StoreError) {
    return new StoreError('store-refused', refusals[0].message, { key, cause: refusals[0] })
  }
  return new StoreError(
    'store-unavailable',
    `Fewer than ${quorum} of the ${nodes.length} Redis servers answered. Check that they run and can be reached.`,
    { key, cause: errors[0] },
  )
}

export function forgetfulError(council: Council, key: string): StoreError {
  const waits = council.nodes.map((node) => node.forgetfulMs).sort((one, other) => one - other)
  const leftMs = Math.max(1, Math.ceil(waits[council.quorum - 1] ?? 0))
  return new StoreError(
    'store-unavailable',
    `Too many of the ${council.nodes.length} Redis servers have started, lost their data, or had their clocks set back, less than \`maxTtl\` ago: somebody they have forgotten may still hold a key. Their votes count in ${leftMs} ms.`,
    { key },
  )
}
