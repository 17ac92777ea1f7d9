import { type Check, type CheckInput, Findings } from './check.ts'
import { forgetfulFaults, isForgotten } from './exclusion.ts'
import { excludes, nameOf, type RecordedTicket, ticketsByKey } from './history.ts'

/**
 * Fences rise on a key: a ticket that was asked for after another one had its lease has a higher fence. So has a holder that
 * comes after another one that it could not hold together with. No fence comes twice.
 *
 * One thing excuses a finding, where the store may lose its data. If it loses a lease before the holder has looked at it, the next
 * holder gets the key at once, and may end before the first holder looks at its own lease, which has the lower fence.
 */
export function checkFences({ history, terms }: CheckInput): Check {
  const findings = new Findings()
  const forgetful = forgetfulFaults({ history, terms })
  const wasForgotten = (one: RecordedTicket, next: RecordedTicket) =>
    isForgotten([one, next], forgetful, terms.ttlMs) &&
    // A lease that was granted after the loss lasts longer.
    forgetful.some(({ until }) => (one.deadlineAt ?? Number.POSITIVE_INFINITY) <= until + terms.ttlMs)
  let examined = 0
  for (const tickets of ticketsByKey(history.tickets).values()) {
    const granted = tickets.filter(({ fence }) => fence !== undefined)
    examined += granted.length
    checkUnique(granted, findings)
    checkAsked(granted, findings)
    checkHeld(granted, { findings, wasForgotten })
  }
  return findings.as('fences', examined)
}

function checkUnique(granted: readonly RecordedTicket[], findings: Findings): void {
  const owners = new Map<bigint, RecordedTicket>()
  for (const ticket of granted) {
    const fence = ticket.fence ?? 0n
    const other = owners.get(fence)
    if (other === undefined) owners.set(fence, ticket)
    else tell(findings, [other, ticket], `fence ${fence} was given twice`)
  }
}

function checkAsked(granted: readonly RecordedTicket[], findings: Findings): void {
  const byGrant = [...granted].sort((one, other) => (one.grantedAt ?? 0) - (other.grantedAt ?? 0))
  const byAsk = [...granted].sort((one, other) => one.askedAt - other.askedAt)
  let highest: RecordedTicket | undefined
  let complete = 0
  for (const ticket of byAsk) {
    for (; (byGrant[complete]?.grantedAt ?? Number.POSITIVE_INFINITY) < ticket.askedAt; complete += 1) {
      const earlier = byGrant[complete]
      if ((earlier?.fence ?? 0n) > (highest?.fence ?? 0n)) highest = earlier
    }
    if (highest !== undefined && (ticket.fence ?? 0n) < (highest.fence ?? 0n)) {
      tell(findings, [highest, ticket], `fence ${ticket.fence} was given after ${highest.fence}`)
    }
  }
}

interface HeldCheck {
  readonly findings: Findings
  /** Whether the store may have lost the first lease before it gave the key to the next holder. */
  readonly wasForgotten: (one: RecordedTicket, next: RecordedTicket) => boolean
}

function checkHeld(granted: readonly RecordedTicket[], { findings, wasForgotten }: HeldCheck): void {
  const byEnd = granted
    .filter(({ lastHeldAt }) => lastHeldAt !== undefined)
    .sort((one, other) => (one.lastHeldAt ?? 0) - (other.lastHeldAt ?? 0))
  const byStart = granted
    .filter(({ firstHeldAt }) => firstHeldAt !== undefined)
    .sort((one, other) => (one.firstHeldAt ?? 0) - (other.firstHeldAt ?? 0))
  // The highest fence of the holders that came before: of those that exclude every other, and of all.
  let exclusive: RecordedTicket | undefined
  let any: RecordedTicket | undefined
  let ended = 0
  for (const ticket of byStart) {
    for (; (byEnd[ended]?.lastHeldAt ?? Number.POSITIVE_INFINITY) < (ticket.firstHeldAt ?? 0); ended += 1) {
      const earlier = byEnd[ended] as RecordedTicket
      if ((earlier.fence ?? 0n) > (any?.fence ?? 0n)) any = earlier
      if (earlier.limit === earlier.units && (earlier.fence ?? 0n) > (exclusive?.fence ?? 0n))
        exclusive = earlier
    }
    const before = ticket.limit === ticket.units ? any : exclusive
    if (before === undefined || !excludes(before, ticket)) continue
    const wasTold = (before.grantedAt ?? 0) < ticket.askedAt
    if (!wasTold && (ticket.fence ?? 0n) < (before.fence ?? 0n)) {
      tell(
        findings,
        [before, ticket],
        `fence ${ticket.fence} held after ${before.fence}`,
        wasForgotten(ticket, before),
      )
    }
  }
}

function tell(
  findings: Findings,
  [one, other]: readonly [RecordedTicket, RecordedTicket],
  text: string,
  excused = false,
): void {
  const evidence = {
    key: other.key,
    from: Math.min(one.grantedAt ?? 0, other.grantedAt ?? 0),
    until: Math.max(one.grantedAt ?? 0, other.grantedAt ?? 0),
    text: `${text}: ${nameOf(one.worker)}, then ${nameOf(other.worker)}`,
  }
  findings.add(evidence, { excused })
}
