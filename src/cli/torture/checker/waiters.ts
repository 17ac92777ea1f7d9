import { type Check, type CheckInput, type Evidence, Findings, seconds } from './check.ts'
import { Disturbances } from './disturbances.ts'
import { endOf, excludes, nameOf, type RecordedTicket, ticketsByKey } from './history.ts'
import { type Durations, durationsOf } from './measures.ts'

export interface WaiterChecks {
  readonly arrival: Check
  readonly wakes: Check
  readonly waiting: Check
  /** From a release to the next grant, while nothing was in the way. */
  readonly handOverMs: Durations
}

/** How the queue of each key moved. */
export function checkWaiters(input: CheckInput): WaiterChecks {
  const { history, terms } = input
  const state: Walk = {
    ...input,
    disturbances: new Disturbances(history, terms.ttlMs),
    overtaken: new Map(),
    waiting: new Findings(),
    slow: new Findings(),
    handOvers: [],
  }
  const byKey = ticketsByKey(history.tickets)
  let queued = 0
  for (const tickets of byKey.values()) {
    queued += tickets.filter(({ queuedAt }) => queuedAt !== undefined).length
    walk(tickets, state)
  }
  const { overtaken, waiting, slow, handOvers } = state
  const arrival = new Findings()
  for (const { evidence, excused } of overtaken.values()) arrival.add(evidence, { excused })
  return {
    arrival: arrival.as('arrival', queued),
    wakes: wakesOf(slow, handOvers.length),
    waiting: waiting.as('waiting', queued),
    handOverMs: durationsOf(handOvers),
  }
}

interface Walk extends CheckInput {
  readonly disturbances: Disturbances
  /** A waiter counts once, however many go before it. */
  readonly overtaken: Map<RecordedTicket, Overtaking>
  readonly waiting: Findings
  readonly slow: Findings
  readonly handOvers: number[]
}

interface Overtaking {
  readonly evidence: Evidence
  readonly excused: boolean
}

/** The tickets of a key at a moment. */
interface KeyState {
  /** Those that wait or hold, as far as anybody knows. */
  readonly open: readonly RecordedTicket[]
  /** Those that were granted, and that may have been in the way of somebody who waits now. */
  readonly recent: readonly RecordedTicket[]
}

/** Goes through the tickets of a key in the order of their grants. */
function walk(tickets: readonly RecordedTicket[], state: Walk): void {
  const granted = tickets
    .filter(({ grantedAt }) => grantedAt !== undefined)
    .sort((one, other) => (one.grantedAt ?? 0) - (other.grantedAt ?? 0))
  let asked = 0
  let open: RecordedTicket[] = []
  let recent: RecordedTicket[] = []
  for (const ticket of granted) {
    const at = ticket.grantedAt ?? 0
    for (; (tickets[asked]?.askedAt ?? Number.POSITIVE_INFINITY) <= at; asked += 1) {
      open.push(tickets[asked] as RecordedTicket)
    }
    // A killed process leaves its ticket behind, which keeps its place for a while.
    open = open.filter((one) => one !== ticket && presentUntil(one, state) >= at)
    const waitedFrom = [ticket, ...open].reduce((from, { queuedAt }) => Math.min(from, queuedAt ?? from), at)
    recent = recent.filter((one) => presentUntil(one, state) >= waitedFrom)
    checkOrder(ticket, open, state)
    checkHandOver(ticket, { open, recent }, state)
    open.push(ticket)
    recent.push(ticket)
  }
  checkStuck(tickets, state)
}

function presentUntil(ticket: RecordedTicket, { terms }: Walk): number {
  const isGone = ticket.releasedAt === undefined && ticket.gaveUpAt === undefined
  return endOf(ticket) + (isGone ? 2 * terms.ttlMs : 0)
}

/** Nobody who came later goes before a waiter, unless the waiter was not heard of. */
function checkOrder(ticket: RecordedTicket, open: readonly RecordedTicket[], state: Walk): void {
  const at = ticket.grantedAt ?? 0
  for (const other of open) {
    const waited = other.queuedAt !== undefined && other.queuedAt < ticket.askedAt
    if (!waited || !excludes(ticket, other) || !isServedLater(other, at, state)) continue
    // A lease that was lost before its holder could see it: the ticket was there, and the process was not.
    if (other.grantedAt !== undefined && other.firstHeldAt === undefined) continue
    const known = state.overtaken.get(other)
    if (known !== undefined && !known.excused) continue
    const excused = !state.terms.keepsOrder || wasSilent(other, at, state)
    if (known === undefined || !excused)
      state.overtaken.set(other, { evidence: orderEvidence(ticket, other), excused })
  }
}

/** Whoever gives up at this moment has left the queue already, and writes it down after that. */
function isServedLater(waiter: RecordedTicket, at: number, { disturbances }: Walk): boolean {
  if (waiter.grantedAt !== undefined) return waiter.grantedAt > at
  const end = endOf(waiter)
  return end - disturbances.idleMs([waiter.worker], at, end) > at + LEAVING_MS
}

const LEAVING_MS = 1000

function wasSilent(waiter: RecordedTicket, at: number, { disturbances, terms }: Walk): boolean {
  const from = waiter.askedAt
  if (disturbances.struck(waiter.worker, from, at)) return true
  return disturbances.idleMs([waiter.worker], from, at) > Math.min(terms.ttlMs, 3000) / 4
}

function orderEvidence(ticket: RecordedTicket, other: RecordedTicket): Evidence {
  return {
    key: ticket.key,
    from: ticket.askedAt,
    until: ticket.grantedAt ?? 0,
    text: `${nameOf(other.worker)} waited from ${seconds(other.queuedAt ?? 0)}; ${nameOf(ticket.worker)} asked at ${seconds(ticket.askedAt)}, and got the key before`,
  }
}

/** A holder has released the key, and a waiter gets it: that takes a message, and no waiting time. */
function checkHandOver(ticket: RecordedTicket, { open, recent }: KeyState, state: Walk): void {
  const { grantedAt: at = 0, queuedAt } = ticket
  const blockers = recent.filter((one) => excludes(one, ticket))
  const [last] = [...blockers].sort((one, other) => releaseOf(other) - releaseOf(one))
  // The key has to become free by a release, and while the ticket waits for it.
  if (queuedAt === undefined || last === undefined || releaseOf(last) > at || releaseOf(last) < queuedAt)
    return
  const from = releaseOf(last)
  const near = [ticket, ...recent, ...open]
  if (!state.disturbances.areCalm(near, from, at)) return
  const workers = near.map(({ worker }) => worker)
  const tookMs = at - from - state.disturbances.idleMs(workers, from, at)
  state.handOvers.push(Math.max(0, tookMs))
  if (tookMs <= wokenMs(state.terms.ttlMs)) return
  state.slow.add({
    key: ticket.key,
    from,
    until: at,
    text: `${nameOf(last.worker)} released the key at ${seconds(from)}, and ${nameOf(ticket.worker)}, which waited, got it ${seconds(at - from)} later`,
  })
}

function releaseOf({ releasedAt = Number.POSITIVE_INFINITY }: RecordedTicket): number {
  return releasedAt
}

/** A waiter that gets no message asks again after two thirds of the ttl, or two seconds. On average that is half of it. */
function wokenMs(ttlMs: number): number {
  return Math.max(250, 0.15 * Math.min(ttlMs, 3000))
}

/** One message may be late on a busy machine. Many of them were not sent. */
function wakesOf(slow: Findings, handOvers: number): Check {
  const check = slow.as('wakes', handOvers)
  if (check.broken >= MANY && check.broken > handOvers / 4) return check
  return { ...check, broken: 0, excused: check.broken, evidence: [] }
}

const MANY = 5

/** Nothing happened on the key for a long time, although somebody waited for it, and the server was there. */
function checkStuck(tickets: readonly RecordedTicket[], state: Walk): void {
  const { history, terms, waiting, disturbances } = state
  const moves = tickets
    .flatMap(({ grantedAt, lastHeldAt, releasedAt, gaveUpAt, lost }) => [
      grantedAt,
      lastHeldAt,
      releasedAt,
      gaveUpAt,
      lost?.at,
    ])
    .filter((at) => at !== undefined)
    .sort((one, other) => one - other)
  let from = 0
  for (const until of [...moves, history.endAt]) {
    if (until - from > terms.settleMs) {
      const left = tickets.filter((one) => {
        const waitedFrom = Math.max(from, one.queuedAt ?? until)
        const waitedUntil = Math.min(until, endOfWait(one))
        const awayMs = disturbances.serverAwayMs(waitedFrom, waitedUntil)
        return waitedUntil - waitedFrom - awayMs > terms.settleMs
      })
      for (const { key, worker, askedAt } of left.slice(0, 3)) {
        const text = `${nameOf(worker)} has waited since ${seconds(askedAt)}, and nobody held the key for ${seconds(until - from)}`
        waiting.add({ key, from, until, text })
      }
    }
    from = until
  }
}

function endOfWait(ticket: RecordedTicket): number {
  return Math.min(
    ticket.grantedAt ?? Number.POSITIVE_INFINITY,
    ticket.gaveUpAt ?? Number.POSITIVE_INFINITY,
    ticket.worker.goneAt,
  )
}
