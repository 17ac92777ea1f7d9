import type { Evidence } from './checker/check.ts'
import { endOf, type RecordedTicket, type RunHistory } from './checker/history.ts'
import { files } from './page/files.generated.ts'
import { EXAMINED, type Report, TITLES } from './report.ts'

/** The run as one HTML file that needs nothing else: no network, no server. */
export function timelinePage(report: Report, history: RunHistory): string {
  const { plan, judgement, failures, ranMs, scheme, prefix } = report
  const keys = [...new Set(history.tickets.map(({ key }) => key))].sort()
  const findings = judgement.checks.flatMap(({ name, evidence }) =>
    evidence.map(({ key, from, until, text }) => ({
      check: TITLES[name],
      key: keys.indexOf(key),
      from,
      until,
      text,
    })),
  )
  const all = barsOf(history, keys)
  const bars = bounded(all, findings)
  const { holds, numbers, checks } = judgement
  const picture = {
    ...{ holds: holds && failures.length === 0, seed: plan.seed, store: scheme, ttlMs: plan.ttlMs, ranMs },
    ...{ endAt: history.endAt, slots: plan.processes, failures, numbers, findings },
    keys: keys.map((key) => (key.startsWith(prefix) ? key.slice(prefix.length) : key)),
    checks: checks.map((check) => ({
      ...check,
      evidence: [],
      title: TITLES[check.name],
      of: EXAMINED[check.name],
    })),
    faults: history.faults.map(({ kind, slot, how, from, until }) => ({
      kind,
      slot,
      how,
      from: Math.round(from),
      until: Math.round(until),
    })),
    bars: bars.map(shortened),
    left: all.length - bars.length,
  }
  return files['timeline.html']
    .replace('/* style */', () => files['timeline.css'])
    .replace('/* picture */', () => `globalThis.picture = ${embedded(picture)}`)
    .replace('/* script */', () => files['timeline.js'])
}

/** A wait or a hold of one ticket. */
export interface Bar {
  readonly key: number
  readonly slot: number
  readonly worker: number
  readonly tag: 'wait' | 'hold'
  readonly from: number
  readonly until: number
  readonly end: 'granted' | 'gave up' | 'released' | 'lost' | 'killed'
  readonly fence: string
}

/** What is drawn at most: the file stays below a few megabytes. */
const MOST_BARS = 40_000

function barsOf({ tickets }: RunHistory, keys: readonly string[]): Bar[] {
  const places = new Map(keys.map((key, index) => [key, index]))
  return tickets.flatMap((ticket) => {
    const { worker, askedAt, grantedAt, gaveUpAt, fence = 0n } = ticket
    const of = {
      key: places.get(ticket.key) ?? 0,
      slot: worker.slot,
      worker: worker.worker,
      fence: `${fence}`,
    }
    const waitedUntil = grantedAt ?? gaveUpAt ?? worker.goneAt
    const end = grantedAt !== undefined ? 'granted' : gaveUpAt !== undefined ? 'gave up' : 'killed'
    const wait: Bar = { ...of, tag: 'wait', from: askedAt, until: waitedUntil, end }
    const bars = waitedUntil - askedAt >= SHORTEST_WAIT_MS ? [wait] : []
    if (grantedAt !== undefined) bars.push({ ...of, tag: 'hold', from: grantedAt, ...endOfHold(ticket) })
    return bars
  })
}

const SHORTEST_WAIT_MS = 2

function endOfHold(ticket: RecordedTicket): Pick<Bar, 'until' | 'end'> {
  const until = endOf(ticket)
  if (ticket.lost !== undefined) return { until: ticket.lost.at, end: 'lost' }
  return { until, end: ticket.releasedAt === undefined ? 'killed' : 'released' }
}

/** The longest ones, and those near a finding. */
function bounded(
  bars: readonly Bar[],
  findings: readonly (Pick<Evidence, 'from' | 'until'> & { key: number })[],
): readonly Bar[] {
  if (bars.length <= MOST_BARS) return bars
  const weightOf = (bar: Bar) =>
    findings.some(
      ({ key, from, until }) => key === bar.key && bar.from <= until + 1000 && bar.until >= from - 1000,
    )
      ? Number.POSITIVE_INFINITY
      : bar.until - bar.from
  const weighed = bars.map((bar) => ({ bar, weight: weightOf(bar) }))
  weighed.sort((one, other) => other.weight - one.weight)
  return weighed.slice(0, MOST_BARS).map(({ bar }) => bar)
}

const ENDS: readonly Bar['end'][] = ['granted', 'gave up', 'released', 'lost', 'killed']

/** An array, as there are many. timeline.js reads it in this order. */
function shortened({ key, slot, worker, tag, from, until, end, fence }: Bar): readonly (number | string)[] {
  const start = Math.round(from * 10) / 10
  const lasts = Math.round((until - from) * 10) / 10
  return [
    key,
    slot,
    worker,
    tag === 'hold' ? 1 : 0,
    start,
    lasts,
    ENDS.indexOf(end),
    ...(tag === 'hold' ? [fence] : []),
  ]
}

/** JSON inside of a script element: nothing in it can end the element. */
function embedded(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
