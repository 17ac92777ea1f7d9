import type { Paint } from '../terminal.ts'
import type { HandOver } from './chronicle.ts'
import type { HandOvers } from './hand-overs.ts'
import { milliseconds } from './screen.ts'
import { broken, type DemoVerdict } from './verdict.ts'

export function summaryOf(handOvers: HandOvers, verdict: DemoVerdict): Readonly<Record<string, unknown>> {
  return {
    tag: 'summary',
    handOvers: Object.fromEntries(CAUSES.map(({ after }) => [after, handOvers.after(after).length])),
    slowestMs: Object.fromEntries(CAUSES.map(({ after }) => [after, slowest(handOvers, after) ?? null])),
    ...verdict,
  }
}

export function summaryLines(
  handOvers: HandOvers,
  verdict: DemoVerdict,
  { ttlMs, paint }: { readonly ttlMs: number; readonly paint: Paint },
): readonly string[] {
  const total = CAUSES.reduce((sum, { after }) => sum + handOvers.after(after).length, 0)
  const rows: [string, string, string][] = [['hand-overs', String(total), '']]
  for (const { after, title } of CAUSES) {
    const count = handOvers.after(after).length
    const slowestMs = slowest(handOvers, after)
    if (slowestMs === undefined) continue
    rows.push([`  after ${title}`, String(count), `slowest ${milliseconds(slowestMs)}`])
  }
  rows.push(
    [
      'slowest take-over',
      milliseconds(Math.max(0, ...CAUSES.map(({ after }) => slowest(handOvers, after) ?? 0))),
      `ttl ${ttlMs} ms`,
    ],
    ['writes to the register', String(verdict.writes), ''],
    ['refused stale writes', String(verdict.refused), ''],
    ['lost updates', ...judged(verdict.lostUpdates, paint)],
    ['fences out of order', ...judged(verdict.fencesOutOfOrder, paint)],
    ['double holders', ...judged(verdict.doubleHolders, paint)],
  )
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const lines = rows.map(([name, value, note]) =>
    `  ${name.padEnd(widths[0] ?? 0)}  ${value.padStart(widths[1] ?? 0)}  ${note}`.trimEnd(),
  )
  return ['', ...lines, '', verdictLine(verdict, paint)]
}

function verdictLine(verdict: DemoVerdict, paint: Paint): string {
  if (verdict.holds === 0) return paint(['red', 'bold'], 'Nobody ever held the key.')
  if (broken(verdict)) return paint(['red', 'bold'], 'Exclusion was broken: see the counts above.')
  return paint(['green', 'bold'], 'Nobody held the key while another did, and no write was lost.')
}

const CAUSES: readonly { readonly after: HandOver; readonly title: string }[] = [
  { after: 'release', title: 'a release' },
  { after: 'term', title: 'a SIGTERM' },
  { after: 'kill', title: 'a SIGKILL' },
  { after: 'stop', title: 'a SIGSTOP' },
]

function slowest(handOvers: HandOvers, after: HandOver): number | undefined {
  const tookMs = handOvers.after(after)
  return tookMs.length === 0 ? undefined : Math.max(...tookMs)
}

function judged(count: number, paint: Paint): [string, string] {
  return [String(count), count === 0 ? paint('green', 'ok') : paint(['red', 'bold'], 'BROKEN')]
}
