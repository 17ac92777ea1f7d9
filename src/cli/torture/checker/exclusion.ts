import { type Check, type CheckInput, Findings, seconds } from './check.ts'
import { nameOf, type RecordedFault, type RecordedTicket, ticketsByKey } from './history.ts'

/**
 * No two holders of a key at the same time, unless both tolerate it. A hold reaches from the first to the last moment at which
 * the library said that the lease was held. A process that was stopped, cut off or killed has no such moment after its lease,
 * so none of these faults excuses an overlap.
 */
export function checkExclusion({ history, terms }: CheckInput): Check {
  const findings = new Findings()
  const forgetful = forgetfulFaults({ history, terms })
  let examined = 0
  for (const all of ticketsByKey(history.tickets).values()) {
    const tickets = all
      .filter(({ firstHeldAt }) => firstHeldAt !== undefined)
      .sort((one, other) => (one.firstHeldAt ?? 0) - (other.firstHeldAt ?? 0))
    examined += tickets.length
    let active: RecordedTicket[] = []
    for (const ticket of tickets) {
      active = active.filter(({ lastHeldAt = 0 }) => lastHeldAt >= (ticket.firstHeldAt ?? 0))
      const together = [...active, ticket]
      active = together
      const units = together.reduce((sum, one) => sum + one.units, 0)
      if (units <= Math.min(...together.map(({ limit }) => limit))) continue
      findings.add(evidenceOf(together), { excused: isForgotten(together, forgetful, terms.ttlMs) })
    }
  }
  return findings.as('exclusion', examined)
}

function evidenceOf(together: readonly RecordedTicket[]) {
  const newest = together.at(-1) as RecordedTicket
  const from = newest.firstHeldAt ?? 0
  const until = Math.min(...together.map(({ lastHeldAt = from }) => lastHeldAt))
  const holders = together.map(
    ({ worker, fence, firstHeldAt = 0, lastHeldAt = 0 }) =>
      `${nameOf(worker)} under fence ${fence} from ${seconds(firstHeldAt)} to ${seconds(lastHeldAt)}`,
  )
  return { key: newest.key, from, until, text: `held at the same time: ${holders.join('; ')}` }
}

/** The faults at which the store may have lost its data. */
export function forgetfulFaults({ history, terms }: CheckInput): readonly RecordedFault[] {
  return terms.forgets ? history.faults.filter(({ kind }) => kind === 'server') : []
}

/**
 * The store lost the data of an earlier holder. That holder goes on until its next renewal, or until its deadline, which is at
 * most a ttl after the fault. The holders are in the order of their first moments.
 */
export function isForgotten(
  together: readonly RecordedTicket[],
  forgetful: readonly RecordedFault[],
  ttlMs: number,
): boolean {
  const at = together.at(-1)?.firstHeldAt ?? 0
  return forgetful.some(({ from, until }) => {
    const earlier = together.slice(0, -1).some(({ askedAt }) => askedAt <= until)
    return (
      earlier &&
      from <= at &&
      Math.max(...together.slice(0, -1).map((t) => t.lastHeldAt ?? 0)) <= until + ttlMs
    )
  })
}
