import type { Ticket } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { RedlockNode } from './node.ts'
import type { Tally } from './poll.ts'
import type { Proposals } from './proposals.ts'
import type { TicketState, Tickets } from './tickets.ts'

/** The servers of which a majority decides, and what all verbs share. */
export interface Quorum {
  readonly nodes: readonly RedlockNode[]
  /** How many servers make a quorum: more than half of them. */
  readonly majority: number
  readonly fences: boolean
  readonly tickets: Tickets
  readonly proposals: Proposals
  /** Tells the engine that asking about a ticket again is worth it. */
  wake(id: string): void
}

/**
 * Runs the questions about a ticket that does not hold yet one after another. Each may claim a fence or give votes away: of two
 * at once, one could give away votes that the other counts, or agree with other servers on another fence.
 */
export function inTurn<T>(
  quorum: Quorum,
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
    if (overtaken && !state.over && state.fence === undefined) quorum.wake(id)
  }
  asking.then(done, done)
  return asking
}

/** Takes back the vote or the place of a ticket on a server, now or once the server can be reached. */
export function withdraw(node: RedlockNode, ticket: Ticket): void {
  const { key, id, minHoldMs, ttlMs } = ticket
  node.ask<unknown>(
    () => (minHoldMs > 0 ? node.scripts.withdraw(ticket) : node.rooms.release({ key, id, cancel: false })),
    {
      answered: () => {},
      failed: () => node.releaseLater({ key, id, cancel: true }, Math.max(ttlMs, minHoldMs)),
    },
  )
}

/** Tells a server the fence of a ticket, so that every quorum knows it. */
export function propagateFence(node: RedlockNode, ticket: Ticket, state: TicketState): void {
  const { fence } = state
  if (state.over || fence === undefined || fence === NO_FENCE) return
  node.ask(() => node.claim(ticket, { fence, mode: 'propagate' }), SILENT)
}

/** The fence of every lease with the option `fences: false`. Lower than every real one. */
export const NO_FENCE = 0n

const SILENT = { answered: (): void => {}, failed: (): void => {} }

/** Too few servers answered. Refusals of most of them are final; anything else may pass. */
export function tooFewError(quorum: Quorum, { errors }: Tally<unknown>, key?: string): StoreError {
  const { nodes, majority } = quorum
  const refusals = errors.filter((error) => error instanceof StoreError && error.code === 'store-refused')
  if (nodes.length - refusals.length < majority && refusals[0] instanceof StoreError) {
    return new StoreError('store-refused', refusals[0].message, { key, cause: refusals[0] })
  }
  return new StoreError(
    'store-unavailable',
    `Fewer than ${majority} of the ${nodes.length} Redis servers answered. Check that they run and can be reached.`,
    { key, cause: errors[0] },
  )
}

export function forgetfulError(quorum: Quorum, key: string): StoreError {
  const waits = quorum.nodes.map((node) => node.forgetfulMs).sort((one, other) => one - other)
  const leftMs = Math.max(1, Math.ceil(waits[quorum.majority - 1] ?? 0))
  return new StoreError(
    'store-unavailable',
    `Too many of the ${quorum.nodes.length} Redis servers have started, lost their data, or had their clocks set back, less than \`maxTtl\` ago: somebody they have forgotten may still hold a key. Their votes count in ${leftMs} ms.`,
    { key },
  )
}
