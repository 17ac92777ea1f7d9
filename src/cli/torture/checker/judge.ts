import type { FaultKind } from '../record.ts'
import type { Check, CheckInput } from './check.ts'
import { Disturbances } from './disturbances.ts'
import { checkExclusion } from './exclusion.ts'
import { checkFences } from './fences.ts'
import type { RecordedTicket } from './history.ts'
import { checkLosses } from './losses.ts'
import { type Durations, durationsOf } from './measures.ts'
import { checkLeftovers, checkRecovery, type RunEnding, takeOvers } from './recovery.ts'
import { checkRegisters } from './registers.ts'
import { checkWaiters } from './waiters.ts'

/** What the history of a run says about the promises. */
export interface Judgement {
  /** Whether no promise was broken, and there was something to look at. */
  readonly holds: boolean
  readonly checks: readonly Check[]
  readonly numbers: {
    readonly asked: number
    readonly granted: number
    readonly gaveUp: number
    /** When the history of each process was full, of those to which that happened. */
    readonly fullAt: readonly number[]
    readonly faults: Partial<Record<FaultKind, number>>
    readonly lost: Readonly<Record<string, number>>
    readonly lateWrites: number
    readonly refusedWrites: number
    readonly waitMs: Durations
    readonly handOverMs: Durations
    readonly lossLateMs: Durations
    readonly takeOverMs: Partial<Record<FaultKind, Durations>>
  }
}

/** The verdict: nine checks read the history only. The checks of recovery and leftovers also use how the run ended. */
export function judgeRun(input: CheckInput, ending: RunEnding): Judgement {
  const { tickets, faults } = input.history
  const registers = checkRegisters(input)
  const waiters = checkWaiters(input)
  const losses = checkLosses(input)
  const checks = [
    checkExclusion(input),
    checkFences(input),
    registers.fenced,
    registers.plain,
    waiters.arrival,
    waiters.wakes,
    waiters.waiting,
    checkRecovery(input, ending),
    losses.told,
    losses.forgotten,
    checkLeftovers(input, ending),
  ]
  const granted = tickets.filter(({ grantedAt }) => grantedAt !== undefined)
  const counts: Partial<Record<FaultKind, number>> = {}
  for (const { kind } of faults) counts[kind] = (counts[kind] ?? 0) + 1
  return {
    holds: granted.length > 0 && checks.every(({ broken }) => broken === 0),
    checks,
    numbers: {
      asked: tickets.length,
      granted: granted.length,
      gaveUp: tickets.filter(({ gaveUpAt }) => gaveUpAt !== undefined).length,
      fullAt: input.history.workers.flatMap(({ fullAt }) => fullAt ?? []).sort((one, other) => one - other),
      faults: counts,
      lost: losses.reasons,
      lateWrites: registers.lateWrites,
      refusedWrites: registers.refused,
      waitMs: durationsOf(granted.map(({ grantedAt = 0, askedAt }) => grantedAt - askedAt)),
      handOverMs: waiters.handOverMs,
      lossLateMs: losses.lateMs,
      takeOverMs: takeOvers(input),
    },
  }
}

/**
 * The keys that nobody got apart from the last round, although several requests have ended, or one has waited for the settling
 * time. Without this, a kind of lock that never works would go unnoticed.
 */
export function refusedKeys({ history, terms }: CheckInput, keys: readonly string[]): readonly string[] {
  const { tickets, calmAt } = history
  const disturbances = new Disturbances(history, terms.ttlMs)
  return keys.filter((asked) => {
    const before = tickets.filter(({ key, askedAt }) => key === asked && askedAt <= calmAt)
    if (before.some(({ grantedAt }) => grantedAt !== undefined)) return false
    // The end of the faults withdraws what still waits.
    const vain = before.filter(({ gaveUpAt }) => gaveUpAt !== undefined && gaveUpAt <= calmAt)
    const isLong = ({ askedAt, gaveUpAt = calmAt, worker }: RecordedTicket) => {
      const until = Math.min(gaveUpAt, calmAt, worker.goneAt)
      return until - askedAt - disturbances.serverAwayMs(askedAt, until) >= terms.settleMs
    }
    return vain.length >= MOST_VAIN || before.some(isLong)
  })
}

/** In a short run on a busy machine, one or two requests may end before somebody has the key. */
const MOST_VAIN = 3
