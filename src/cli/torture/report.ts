import type { Paint } from '../terminal.ts'
import { age, plain } from '../text.ts'
import type { Check, CheckName } from './checker/check.ts'
import type { Judgement } from './checker/judge.ts'
import type { Durations } from './checker/measures.ts'
import type { TorturePlan } from './plan.ts'

/** A run and what came of it. */
export interface Report {
  readonly plan: TorturePlan
  readonly scheme: string
  readonly prefix: string
  readonly ranMs: number
  /** What went wrong with the run itself. */
  readonly failures: readonly string[]
  readonly judgement: Judgement
}

export function opening(
  plan: TorturePlan,
  { scheme, semaphores }: { readonly scheme: string; readonly semaphores: boolean },
): readonly string[] {
  const { processes, durationMs, ttlMs, kinds, seed, withoutCuts } = plan
  const store = plan.storeUrl === undefined ? 'a temporary sqlite file' : `${scheme}:`
  const lines = [
    `${processes} processes use ${store} for ${age(durationMs)}, with a ttl of ${age(ttlMs)}.`,
    `Faults: ${kinds.length === 0 ? 'none' : kinds.join(', ')}. Seed: ${seed}.`,
  ]
  if (withoutCuts !== undefined) lines.push(`No cuts and outages: ${withoutCuts}.`)
  if (!semaphores) lines.push(`No semaphores: ${scheme} has none.`)
  return [...lines, '']
}

/** What each check counts. */
export const TITLES: Readonly<Record<CheckName, string>> = {
  exclusion: 'overlapping holds',
  fences: 'fences out of order',
  'fenced-register': 'lost updates with fences',
  'plain-register': 'lost updates without',
  arrival: 'waiters overtaken',
  wakes: 'hand-overs without a message',
  waiting: 'waiters left behind',
  recovery: 'calls failed after the faults',
  told: 'losses told late',
  forgotten: 'leases given up too early',
  leftovers: 'keys left in the store',
}

/** What a check looks at. */
export const EXAMINED: Readonly<Record<CheckName, string>> = {
  exclusion: 'holds',
  fences: 'leases',
  'fenced-register': 'writes',
  'plain-register': 'writes',
  arrival: 'waits',
  wakes: 'calm hand-overs',
  waiting: 'waits',
  recovery: 'calls',
  told: 'losses',
  forgotten: 'leases',
  leftovers: 'keys',
}

export function reportLines(
  { plan, ranMs, judgement, failures }: Report,
  { timeline, paint }: { readonly timeline: string; readonly paint: Paint },
): readonly string[] {
  const { checks, numbers } = judgement
  const holds = judgement.holds && failures.length === 0
  const faults = Object.entries(numbers.faults).map(([kind, count]) => `${count} ${kind}`)
  const missing = faultsNotSeen(plan, judgement)
  const takeOvers = Object.entries(numbers.takeOverMs).map(([kind, took]) => [
    `take-over after ${kind}`,
    durations(took),
  ])
  const rows = [
    ['waited for a key', durations(numbers.waitMs)],
    ['hand-over', durations(numbers.handOverMs)],
    ['a loss told after its deadline', durations(numbers.lossLateMs)],
    ...takeOvers,
  ]
  return [
    '',
    `${numbers.granted} leases of ${numbers.asked} requests in ${age(ranMs)}. Faults: ${faults.length === 0 ? 'none' : faults.join(', ')}.`,
    ...(missing.length === 0
      ? []
      : [`Too short for these faults, which did not come: ${missing.join(', ')}. See --for.`]),
    ...fullLines(numbers),
    '',
    ...checks.flatMap((check) => checkLines(check, paint)),
    '',
    ...rows.map(([name = '', text = '']) => `  ${name.padEnd(32)}${text}`),
    `  ${'late writes'.padEnd(32)}${numbers.lateWrites}, of which fences refused ${numbers.refusedWrites}`,
    '',
    holds ? paint('green', 'No promise was broken.') : paint('red', verdictText(judgement, failures)),
    `Timeline: ${plain(timeline)}`,
    `Seed: ${plan.seed}`,
  ]
}

/** The faults that were announced, and for which the run was too short. */
export function faultsNotSeen({ kinds }: TorturePlan, { numbers }: Judgement): readonly string[] {
  return kinds.filter((kind) => numbers.faults[kind] === undefined)
}

function fullLines({ fullAt: [first, ...others] }: Judgement['numbers']): readonly string[] {
  if (first === undefined) return []
  const processes = others.length === 0 ? '1 process' : `${others.length + 1} processes`
  return [
    `Full history: ${processes}, first after ${age(first)}, took keys only in the last round from then on.`,
  ]
}

function verdictText({ checks, numbers }: Judgement, failures: readonly string[]): string {
  const broken = checks.filter((check) => check.broken > 0)
  if (broken.length > 0)
    return `BROKEN: ${broken.map(({ name, broken: count }) => `${count} ${TITLES[name]}`).join(', ')}.`
  if (numbers.granted === 0) return 'Nothing was checked: no process got a lease.'
  return `The run did not go as planned: ${failures.map(plain).join('; ')}.`
}

function checkLines({ name, examined, broken, excused, evidence }: Check, paint: Paint): readonly string[] {
  const verdict =
    broken > 0 ? paint('red', 'BROKEN') : examined === 0 ? paint('yellow', 'not seen') : paint('green', 'ok')
  const pardon = excused > 0 ? `, ${excused} excused` : ''
  const line = `  ${TITLES[name].padEnd(32)}${String(broken).padStart(6)}  of ${examined} ${EXAMINED[name]}${pardon}  ${verdict}`
  return [
    line,
    ...evidence.slice(0, 3).map(({ text, key }) => `      ${plain(key === '' ? text : `${key}: ${text}`)}`),
  ]
}

function durations({ count, median, p99, longest }: Durations): string {
  if (count === 0) return 'not seen'
  return `${age(median)} median, ${age(p99)} p99, ${age(longest)} longest (${count})`
}
