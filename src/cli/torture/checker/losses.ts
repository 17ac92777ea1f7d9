import { type Check, type CheckInput, Findings, seconds } from './check.ts'
import { Disturbances } from './disturbances.ts'
import { forgetfulFaults } from './exclusion.ts'
import { nameOf, type RecordedTicket } from './history.ts'
import { type Durations, durationsOf } from './measures.ts'

export interface LossChecks {
  readonly told: Check
  readonly forgotten: Check
  /** From the lease deadline to the abort of the signal, without the time in which the process did not run. */
  readonly lateMs: Durations
  /** How many leases were lost, by reason. */
  readonly reasons: Readonly<Record<string, number>>
}

/** A holder hears of its loss by the deadline, and the store does not give up a lease before its time. */
export function checkLosses({ history, terms }: CheckInput): LossChecks {
  const disturbances = new Disturbances(history, terms.ttlMs)
  const told = new Findings()
  const forgotten = new Findings()
  const late: number[] = []
  const reasons: Record<string, number> = {}
  const forgetful = forgetfulFaults({ history, terms })
  let losses = 0
  for (const ticket of history.tickets) {
    const { lost, refusedAt, deadlineAt, worker } = ticket
    if (lost === undefined && refusedAt === undefined) continue
    losses += 1
    if (lost === undefined) {
      // `assertHeld()` has refused, and the process lived on for long enough to tell.
      const livedMs =
        worker.goneAt - (refusedAt ?? 0) - disturbances.idleMs([worker], refusedAt ?? 0, worker.goneAt)
      if (
        livedMs > LATE_MS &&
        ticket.releasedAt !== undefined &&
        ticket.releasedAt - (refusedAt ?? 0) > LATE_MS
      )
        told.add(lateEvidence(ticket, 'was never told of its loss'))
      continue
    }
    reasons[lost.reason] = (reasons[lost.reason] ?? 0) + 1
    if (deadlineAt !== undefined) {
      const from = Math.min(deadlineAt, lost.at)
      const lateMs = Math.max(0, lost.at - deadlineAt - disturbances.idleMs([worker], from, lost.at))
      late.push(lateMs)
      if (lateMs > LATE_MS) told.add(lateEvidence(ticket, `was told ${seconds(lateMs)} after the deadline`))
    }
    if (lost.reason !== 'expired') {
      const excused = forgetful.some(({ from, until }) => from <= lost.at && ticket.askedAt <= until)
      forgotten.add(
        {
          key: ticket.key,
          from: ticket.grantedAt ?? ticket.askedAt,
          until: lost.at,
          text: `${nameOf(worker)} lost its lease at ${seconds(lost.at)}: ${lost.reason}`,
        },
        { excused },
      )
    }
  }
  const held = history.tickets.filter(({ grantedAt }) => grantedAt !== undefined).length
  return {
    told: told.as('told', losses),
    forgotten: forgotten.as('forgotten', held),
    lateMs: durationsOf(late),
    reasons,
  }
}

/** A timer that fires later than this was not set for the deadline. */
const LATE_MS = 500

function lateEvidence({ key, worker, deadlineAt, refusedAt, lost }: RecordedTicket, text: string) {
  const from = deadlineAt ?? refusedAt ?? 0
  return { key, from, until: lost?.at ?? from + LATE_MS, text: `${nameOf(worker)} ${text}` }
}
