import type { FaultKind } from '../record.ts'
import { type Check, type CheckInput, Findings } from './check.ts'
import { endOf, excludes, nameOf, type RecordedFault, type RecordedTicket } from './history.ts'
import { type Durations, durationsOf } from './measures.ts'

export interface RunEnding {
  /** How many processes did not end by themselves. */
  readonly stuckProcesses: number
  /** What the store still had of the run after all processes had ended. */
  readonly leftovers: readonly string[]
}

/** After the faults every process gets every key once more, and ends. */
export function checkRecovery({ history }: CheckInput, { stuckProcesses }: RunEnding): Check {
  const findings = new Findings()
  for (const { worker, key, at, error } of history.lastRounds) {
    if (error === null) continue
    findings.add({
      key,
      from: history.endAt,
      until: at,
      text: `${nameOf(worker)} did not get the key after the faults: ${error}`,
    })
  }
  for (let count = 0; count < stuckProcesses; count += 1) {
    findings.add({ key: '', from: history.endAt, until: history.endAt, text: 'a process did not end' })
  }
  return findings.as('recovery', history.lastRounds.length)
}

export function checkLeftovers({ history }: CheckInput, { leftovers }: RunEnding): Check {
  const findings = new Findings()
  for (const text of leftovers) findings.add({ key: '', from: history.endAt, until: history.endAt, text })
  return findings.as('leftovers', new Set(history.tickets.map(({ key }) => key)).size)
}

/** By kind of fault: from the fault to the next holder of a key that the struck process held, and for which others waited. */
export function takeOvers({ history }: CheckInput): Partial<Record<FaultKind, Durations>> {
  const took: Partial<Record<FaultKind, number[]>> = {}
  for (const fault of history.faults) {
    for (const holder of heldBy(fault, history.tickets)) {
      const next = nextHolder(holder, fault, history.tickets)
      if (next?.grantedAt === undefined) continue
      took[fault.kind] ??= []
      took[fault.kind]?.push(next.grantedAt - Math.max(fault.from, next.askedAt))
    }
  }
  return Object.fromEntries(Object.entries(took).map(([kind, values]) => [kind, durationsOf(values)]))
}

/** Holders whose lease the fault ended. */
function heldBy(fault: RecordedFault, tickets: readonly RecordedTicket[]): readonly RecordedTicket[] {
  return tickets.filter(
    (ticket) =>
      fault.slot === ticket.worker.slot &&
      ticket.firstHeldAt !== undefined &&
      ticket.firstHeldAt <= fault.from &&
      ticket.releasedAt === undefined &&
      endOf(ticket) >= fault.from,
  )
}

function nextHolder(
  holder: RecordedTicket,
  { from }: RecordedFault,
  tickets: readonly RecordedTicket[],
): RecordedTicket | undefined {
  let next: RecordedTicket | undefined
  for (const ticket of tickets) {
    if (ticket.key !== holder.key || ticket === holder || !excludes(ticket, holder)) continue
    const { grantedAt = Number.NEGATIVE_INFINITY } = ticket
    if (grantedAt > from && grantedAt < (next?.grantedAt ?? Number.POSITIVE_INFINITY)) next = ticket
  }
  return next
}
