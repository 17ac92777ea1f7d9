import { setTimeout as sleep } from 'node:timers/promises'
import { type Random, seededRandom } from '../../testing/index.ts'
import { age } from '../text.ts'
import { aftermathOf } from './checker/disturbances.ts'
import { callHook } from './hook.ts'
import type { FaultKind, NemesisRecord } from './record.ts'
import type { Workforce } from './workforce.ts'

export interface NemesisPlan {
  readonly kinds: readonly FaultKind[]
  readonly seed: string
  readonly ttlMs: number
  readonly durationMs: number
  readonly hook: string | undefined
  /** A stopped process could keep the file of the store locked. */
  readonly stopsGently: boolean
  /** Ends the run early. */
  readonly signal: AbortSignal
  readonly now: () => number
  readonly tell: (record: NemesisRecord) => void
}

/** A fault that was chosen and has not begun. */
interface PlannedFault {
  readonly kind: FaultKind
  readonly slot: number | null
  readonly lastsMs: number
  /** For people. */
  readonly how: string
  begin(): Promise<void> | void
  end(): Promise<void> | void
}

/** Lets one fault after the other happen, with calm times in between. After that everything works again. */
export async function runNemesis(workforce: Workforce, plan: NemesisPlan): Promise<void> {
  const { kinds, ttlMs, durationMs, signal, now, tell } = plan
  const random = seededRandom(plan.seed)
  const endAt = now() + durationMs
  const wait = (ms: number) =>
    sleep(Math.max(0, Math.min(ms, endAt - now())), undefined, { signal }).catch(() => {})
  const next = everyKind(kinds, random)
  // What happens without any fault is the measure of what happens with one.
  await wait(Math.max(CALM_MS, Math.min(LONGEST_OPENING_MS, durationMs / 6)))
  for (let nth = 1; now() < endAt - CALM_MS && !signal.aborted; nth += 1) {
    const kind = next()
    if (kind === undefined) await wait(durationMs)
    else {
      const fault = planned(kind, { workforce, random, plan })
      tell({ tag: 'fault', at: now(), nth, kind, slot: fault.slot, how: fault.how })
      await begin(fault)
      await wait(fault.lastsMs)
      await fault.end()
      tell({ tag: 'fault-ended', at: now(), nth })
    }
    // After each kind has come once, there is a lull in which no fault shows any more.
    const isLull = nth % Math.max(LEAST_IN_A_ROW, kinds.length) === 0
    await wait(CALM_MS + ttlMs * random.next() + (isLull ? aftermathOf(ttlMs) + LULL_MS : 0))
  }
  tell({ tag: 'calm', at: now() })
}

/** A program that fails at `begin` may have broken half of the server, so it is called with `end` too. */
async function begin(fault: PlannedFault): Promise<void> {
  try {
    await fault.begin()
  } catch (error) {
    await Promise.resolve(fault.end()).catch(() => {})
    throw error
  }
}

const CALM_MS = 400
const LONGEST_OPENING_MS = 8000
const LULL_MS = 2000
const LEAST_IN_A_ROW = 3

/** Each kind once before the first one comes again. */
function everyKind(kinds: readonly FaultKind[], random: Random): () => FaultKind | undefined {
  let left: FaultKind[] = []
  return () => {
    if (left.length === 0) left = [...kinds]
    if (left.length === 0) return undefined
    return left.splice(random.between(0, left.length - 1), 1)[0]
  }
}

interface Means {
  readonly workforce: Workforce
  readonly random: Random
  readonly plan: NemesisPlan
}

function planned(kind: FaultKind, { workforce, random, plan }: Means): PlannedFault {
  const { ttlMs, hook, stopsGently } = plan
  const slot = random.between(0, workforce.size - 1)
  const slots = Array.from({ length: workforce.size }, (_, index) => index)
  const lastsMs = Math.round(ttlMs * (0.2 + 1.8 * random.next()))
  switch (kind) {
    case 'kill':
      return {
        kind,
        slot,
        lastsMs: random.between(50, 1000),
        how: 'SIGKILL',
        begin: () => workforce.kill(slot),
        end: () => workforce.hire(slot),
      }
    case 'pause':
      return {
        kind,
        slot,
        lastsMs,
        how: `SIGSTOP for ${age(lastsMs)}`,
        begin: () => workforce.stop(slot, { gently: stopsGently }),
        end: () => workforce.proceed(slot),
      }
    case 'cut': {
      const how = random.pick(['reset', 'silent', 'stranded'] as const)
      return {
        kind,
        slot,
        lastsMs,
        how: `${CUTS[how]}, ${age(lastsMs)}`,
        begin: () => workforce.cut(slot, how),
        end: () => workforce.mend(slot),
      }
    }
    case 'outage': {
      const how = random.pick(['reset', 'silent', 'stranded'] as const)
      return {
        kind,
        slot: null,
        lastsMs,
        how: `${CUTS[how]}, ${age(lastsMs)}`,
        begin: () => {
          for (const each of slots) workforce.cut(each, how)
        },
        end: () => {
          for (const each of slots) workforce.mend(each)
        },
      }
    }
    case 'clock': {
      const aheadMs = random.pick([-3_600_000, -ttlMs, -ttlMs / 2, ttlMs / 2, ttlMs, 3_600_000])
      return {
        kind,
        slot,
        lastsMs,
        how: `wall clock ${age(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead' : 'behind'} for ${age(lastsMs)}`,
        begin: () => workforce.setClock(slot, aheadMs),
        end: () => workforce.setClock(slot, 0),
      }
    }
    case 'server':
      return {
        kind,
        slot: null,
        lastsMs,
        how: `--on-fault, ${age(lastsMs)}`,
        begin: () => called('begin'),
        end: () => called('end'),
      }
    default:
      return kind satisfies never
  }

  async function called(when: 'begin' | 'end'): Promise<void> {
    const result = await callHook(hook ?? '', when)
    if (result !== 'done')
      throw new HookFailed(`the program of --on-fault failed at ${when}: ${result.failed}`)
  }
}

/** The program of `--on-fault` did not do what it should. The run ends, because the state of the server is unknown. */
export class HookFailed extends Error {}

const CUTS: Readonly<Record<'reset' | 'silent' | 'stranded', string>> = {
  reset: 'connections reset',
  silent: 'no byte passes',
  stranded: 'old connections dead, new ones work',
}
