import type { Random } from '../../src/testing/random.ts'
import { calmWeather, type Weather } from '../../src/testing/simulated-network.ts'

/** A kind of fault. A history draws some faults of its family, so that each fault also appears without the others. */
export type Fault =
  | 'lost requests'
  | 'lost replies'
  | 'silence'
  | 'slow messages'
  | 'overtaking'
  | 'duplicates'
  | 'lost wakes'
  | 'late and repeated wakes'
  | 'failing subscriptions'
  | 'reconnects'
  | 'cuts'
  | 'pauses'
  | 'suspends'
  | 'late timers'
  | 'crashes'
  | 'closes'
  | 'clock rates'
  | 'wall jumps'
  | 'store hangs'
  | 'store restarts'
  | 'store refuses'
  | 'data loss'
  | 'store jumps forward'
  | 'store jumps back'

const NETWORK: readonly Fault[] = [
  'lost requests',
  'lost replies',
  'silence',
  'slow messages',
  'overtaking',
  'duplicates',
  'lost wakes',
  'late and repeated wakes',
  'failing subscriptions',
  'reconnects',
  'cuts',
]
const PROCESSES: readonly Fault[] = ['pauses', 'suspends', 'late timers', 'crashes', 'closes']
const CLOCKS: readonly Fault[] = [
  'clock rates',
  'wall jumps',
  'suspends',
  'late timers',
  'slow messages',
  'cuts',
]
const SERVER: readonly Fault[] = [
  'store hangs',
  'store restarts',
  'store refuses',
  'lost replies',
  'silence',
  'reconnects',
]
const MEMORY: readonly Fault[] = [
  'data loss',
  'store jumps forward',
  'store jumps back',
  'lost replies',
  'pauses',
]

export const families = {
  'contention alone': [],
  'a network that loses, delays and repeats': NETWORK,
  'processes that pause, sleep and die': PROCESSES,
  'clocks that disagree': CLOCKS,
  'a store that hangs and restarts': SERVER,
  'a store that forgets and whose clock jumps': MEMORY,
  'everything at once': [...new Set([...NETWORK, ...PROCESSES, ...CLOCKS, ...SERVER, ...MEMORY])],
} as const satisfies Readonly<Record<string, readonly Fault[]>>

export type Family = keyof typeof families

export const familyNames = Object.keys(families) as readonly Family[]

/** How the tickets of a key use it: by one kind of lock, or by several kinds at once. */
export type Usage = 'mutex' | 'read-write' | 'semaphore' | 'mixed'

export interface Plan {
  readonly faults: ReadonlySet<Fault>
  readonly weather: Weather
  /** How long faults happen. */
  readonly stormMs: number
  readonly processes: number
  readonly actors: number
  /** Whether the store is in the same process: it answers at once, and a failure is thrown at once. */
  readonly direct: boolean
  readonly keys: readonly { readonly key: string; readonly usage: Usage; readonly permits: number }[]
  readonly ttls: readonly number[]
  readonly waits: readonly number[]
  /** How many faults happen at single moments. */
  readonly blows: number
}

export function drawPlan(random: Random, family: Family): Plan {
  const faults = drawFaults(random, families[family])
  const ttls = random.pick([
    [60],
    [200],
    [500, 1000],
    [1000, 3000],
    [200, 5000],
    [10_000],
    [60_000],
    [60_000],
    [300, 60_000],
  ])
  const direct = random.chance(0.1)
  return {
    faults,
    weather: drawWeather(random, faults),
    stormMs: random.pick([1000, 5000, 15_000, 3 * Math.max(1000, ...ttls)]),
    processes: random.between(1, 4),
    actors: random.between(1, 3),
    direct,
    keys: ['a', 'b', 'c'].slice(0, random.pick([1, 1, 1, 2, 3])).map((key) => ({
      key,
      usage: random.pick(['mutex', 'mutex', 'read-write', 'semaphore', 'mixed'] as const),
      permits: random.between(1, 4),
    })),
    ttls,
    waits: random.pick([
      [Number.POSITIVE_INFINITY],
      [20_000],
      [0, 50, 500],
      [0, 100, 2000, 20_000, Number.POSITIVE_INFINITY],
    ]),
    blows: random.between(1, 4),
  }
}

function drawFaults(random: Random, family: readonly Fault[]): ReadonlySet<Fault> {
  if (family.length === 0) return new Set()
  const share = random.pick([0.15, 0.3, 0.6, 1])
  const faults = new Set(family.filter(() => random.chance(share)))
  faults.add(random.pick(family))
  // No process can notice that its machine slept while its wall clock was set back; see docs/simulation.md.
  if (faults.has('wall jumps')) faults.delete('suspends')
  return faults
}

function drawWeather(random: Random, faults: ReadonlySet<Fault>): Weather {
  const often = (fault: Fault): number => (faults.has(fault) ? random.pick([0.02, 0.1, 0.3]) : 0)
  return {
    ...calmWeather,
    latencyMs:
      faults.size === 0
        ? calmWeather.latencyMs
        : random.pick([calmWeather.latencyMs, [1, 5], [0, 30]] as const),
    slow: often('slow messages'),
    slowMs: random.pick([
      [10, 200],
      [500, 3000],
      [100, 9000],
    ] as const),
    loseRequest: often('lost requests'),
    loseReply: often('lost replies'),
    silence: faults.has('silence') ? random.pick([0.2, 0.7, 1]) : 0,
    duplicate: often('duplicates'),
    reorder: faults.has('overtaking'),
    loseWake: faults.has('lost wakes') ? random.pick([0.2, 1]) : 0,
    duplicateWake: faults.has('late and repeated wakes') ? random.pick([0.1, 0.3, 0.6]) : 0,
    slowWake: faults.has('late and repeated wakes') ? random.pick([0.1, 0.3, 0.6]) : 0,
    failListen: faults.has('failing subscriptions') ? random.pick([0.3, 1]) : 0,
  }
}
