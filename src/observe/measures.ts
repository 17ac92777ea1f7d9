import type { LockEventName, LockEvents, ProcessEvents, StoreVerb } from '../index.ts'
import type { KeyGroups } from './key-groups.ts'

interface Measure {
  /** `level`: how many there are now. `oldest`: the age of the oldest one. */
  readonly kind: 'duration' | 'count' | 'level' | 'oldest'
  readonly unit: string
  readonly labels: readonly Label[]
  readonly about: string
}

type Label = 'store' | 'group' | 'election' | 'outcome' | 'reason' | 'verb' | 'was'
export type Labels = Readonly<Partial<Record<Label, string>>>

interface Kinds {
  readonly wait: 'duration'
  readonly hold: 'duration'
  readonly hand_over: 'duration'
  readonly renewal: 'duration'
  readonly requests: 'count'
  readonly queued: 'count'
  readonly jeopardies: 'count'
  readonly losses: 'count'
  readonly evictions: 'count'
  readonly store_errors: 'count'
  readonly waiting: 'level'
  readonly held: 'level'
  readonly leading: 'level'
  readonly oldest_wait: 'oldest'
  readonly oldest_hold: 'oldest'
}

/** Everything that is measured, whatever exports it. All numbers are about this process: it does not see waiters elsewhere. */
export const MEASURES: { readonly [Name in MeasureName]: Measure & { readonly kind: Kinds[Name] } } = {
  wait: {
    kind: 'duration',
    unit: 's',
    labels: ['store', 'group', 'outcome'],
    about: 'From asking for a key until it was acquired or given up.',
  },
  hold: {
    kind: 'duration',
    unit: 's',
    labels: ['store', 'group', 'outcome'],
    about: 'From acquiring a key until it was released, detached or lost.',
  },
  hand_over: {
    kind: 'duration',
    unit: 's',
    labels: ['store', 'group'],
    about: 'From the wake that told a waiter of its turn until its caller had the lease.',
  },
  renewal: {
    kind: 'duration',
    unit: 's',
    labels: ['store'],
    about: 'From sending the renewal of a lease until the store had confirmed it.',
  },
  requests: {
    kind: 'count',
    unit: '{request}',
    labels: ['store', 'group', 'outcome'],
    about: 'Requests for a key that have ended, by how.',
  },
  queued: {
    kind: 'count',
    unit: '{request}',
    labels: ['store', 'group'],
    about: 'Requests that found the key taken and had to queue.',
  },
  jeopardies: {
    kind: 'count',
    unit: '{lease}',
    labels: ['store', 'group'],
    about: 'Leases with less than half of their ttl left, because renewals failed or were late.',
  },
  losses: {
    kind: 'count',
    unit: '{lease}',
    labels: ['store', 'group', 'reason'],
    about: 'Leases that were lost while they were held.',
  },
  evictions: {
    kind: 'count',
    unit: '{ticket}',
    labels: ['store', 'group', 'was'],
    about: 'Holders and waiters that somebody removed.',
  },
  store_errors: {
    kind: 'count',
    unit: '{error}',
    labels: ['store', 'verb', 'outcome'],
    about: 'Requests to the store that failed: refused, or ambiguous, as they may have been acted on.',
  },
  waiting: {
    kind: 'level',
    unit: '{request}',
    labels: ['store', 'group'],
    about: 'Requests of this process that stand in a queue.',
  },
  held: {
    kind: 'level',
    unit: '{lease}',
    labels: ['store', 'group'],
    about: 'Leases that this process holds.',
  },
  leading: {
    kind: 'level',
    unit: '{term}',
    labels: ['store', 'group', 'election'],
    about:
      'Terms of this process as the leader of an election: 0 from its first campaign on, and while it only waits.',
  },
  oldest_wait: {
    kind: 'oldest',
    unit: 's',
    labels: ['store', 'group'],
    about: 'How long the request has waited that has waited longest.',
  },
  oldest_hold: {
    kind: 'oldest',
    unit: 's',
    labels: ['store', 'group'],
    about: 'How long the lease has been held that has been held longest.',
  },
}

export type MeasureName = keyof Kinds
export type OfKind<Kind extends Measure['kind']> = {
  [Name in MeasureName]: Kinds[Name] extends Kind ? Name : never
}[MeasureName]

/** The names of one kind, in the order of the table. */
export function namesOf<Kind extends Measure['kind']>(kind: Kind): readonly OfKind<Kind>[] {
  const names = Object.keys(MEASURES) as MeasureName[]
  return names.filter((name) => MEASURES[name].kind === kind) as OfKind<Kind>[]
}

/** Takes the numbers: OpenTelemetry or Prometheus. */
export interface MeasureSink {
  duration(name: OfKind<'duration'>, seconds: number, labels: Labels): void
  count(name: OfKind<'count'>, by: 0 | 1, labels: Labels): void
  level(name: OfKind<'level'>, by: 0 | 1 | -1, labels: Labels): void
}

export interface Reading {
  readonly labels: Labels
  readonly seconds: number
}

export interface Measuring {
  /** The present age of the oldest one, for each set of labels. */
  oldest(name: OfKind<'oldest'>): readonly Reading[]
  /** Ends the measuring and takes back what it has added to levels. */
  stop(): void
}

/** The readings of several. If two have the same labels, the older one is exported last, and stays. */
export function oldestLast(all: Iterable<Measuring>, name: OfKind<'oldest'>): readonly Reading[] {
  const readings = Array.from(all, (one) => one.oldest(name)).flat()
  return readings.sort((one, other) => one.seconds - other.seconds)
}

/** Turns events into numbers. */
export function measure(
  locks: Pick<ProcessEvents, 'on'>,
  { groupOf, electionOf }: KeyGroups,
  sink: MeasureSink,
): Measuring {
  const present: Present = {
    waiting: new PresenceMeter('waiting', sink),
    held: new PresenceMeter('held', sink),
    leading: new PresenceMeter('leading', sink),
  }
  const listeners = listenersOf({
    labelsOf: labelCache(groupOf, sink),
    electionOf: electionCache({ groupOf, electionOf }, sink),
    present,
    sink,
  })
  const stops = Object.entries(listeners).map(([name, listener]) =>
    locks.on(name as LockEventName, listener as (event: unknown) => void),
  )
  return {
    oldest: (name) => present[OLDEST[name]].oldest(),
    stop() {
      for (const stop of stops) stop()
      for (const presence of Object.values(present)) presence.clear()
    },
  }
}

type Present = Readonly<Record<OfKind<'level'>, PresenceMeter>>

/** The labels that nearly every series has. */
interface OfGroup {
  readonly store: string
  readonly group: string
}

interface Meters {
  readonly labelsOf: (event: Keyed) => OfGroup
  /** The labels of an election. The first call starts its level at 0. */
  readonly electionOf: (event: Keyed) => Labels
  readonly present: Present
  readonly sink: MeasureSink
}

function listenersOf({ labelsOf, electionOf, present, sink }: Meters): Listeners {
  const ended = (event: EndedRequest, outcome: { readonly request: string; readonly wait: string }) => {
    present.waiting.leave(event.id)
    const { store, group } = labelsOf(event)
    sink.count('requests', 1, { store, group, outcome: outcome.request })
    sink.duration('wait', event.waitedMs / 1000, { store, group, outcome: outcome.wait })
  }
  const left = (event: EndedHold) => {
    present.held.leave(event.id)
    const { store, group } = labelsOf(event)
    sink.duration('hold', event.heldMs / 1000, { store, group, outcome: event.event })
  }
  return {
    requested: (event) => {
      if (event.campaign) electionOf(event)
    },
    queued: (event) => {
      const labels = labelsOf(event)
      sink.count('queued', 1, labels)
      present.waiting.enter(event.id, labels)
    },
    busy: (event) => sink.count('requests', 1, { ...labelsOf(event), outcome: 'busy' }),
    acquired: (event) => {
      ended(event, { request: 'acquired', wait: 'acquired' })
      const labels = labelsOf(event)
      present.held.enter(event.id, labels)
      if (event.wokenMs !== undefined) sink.duration('hand_over', event.wokenMs / 1000, labels)
    },
    timeout: (event) => ended(event, { request: 'timeout', wait: 'timeout' }),
    withdrawn: (event) => ended(event, { request: event.reason, wait: 'withdrawn' }),
    adopted: (event) => present.held.enter(event.id, labelsOf(event)),
    renewed: ({ store, tookMs }) => sink.duration('renewal', tookMs / 1000, { store }),
    jeopardy: (event) => sink.count('jeopardies', 1, labelsOf(event)),
    lost: (event) => {
      left(event)
      sink.count('losses', 1, { ...labelsOf(event), reason: event.reason })
    },
    released: left,
    detached: left,
    evicted: (event) => sink.count('evictions', 1, { ...labelsOf(event), was: event.was }),
    'store-error': ({ store, verb, outcome }) => sink.count('store_errors', 1, { store, verb, outcome }),
    elected: (event) => present.leading.enter(event.id, electionOf(event)),
    resigned: ({ id }) => present.leading.leave(id),
  }
}

/** The labels of an event: one object for each store and group, cached, as every event needs them. */
function labelCache(groupOf: (key: string) => string, sink: MeasureSink): (event: Keyed) => OfGroup {
  const known = new Map<string, OfGroup>()
  return ({ store, key }) => {
    const group = groupOf(key)
    const name = `${store} ${group}`
    const found = known.get(name)
    if (found !== undefined) return found
    const labels = { store, group }
    known.set(name, labels)
    begin(labels, sink)
    return labels
  }
}

/** The same for elections. A candidate that has never led tells 0, so that an alert knows of its election. */
function electionCache({ groupOf, electionOf }: KeyGroups, sink: MeasureSink): (event: Keyed) => Labels {
  const known = new Map<string, Labels>()
  return ({ store, key }) => {
    const labels = { store, group: groupOf(key), election: electionOf(key) }
    // With the group: the elections that are too many have one name, and may be in several groups.
    const name = JSON.stringify(labels)
    const found = known.get(name)
    if (found !== undefined) return found
    known.set(name, labels)
    sink.level('leading', 0, labels)
    return labels
  }
}

/** Starts counters at 0. A counter that first appears as 1 has no rate, so the first loss would raise no alarm. */
function begin(labels: Labels & { readonly store: string }, sink: MeasureSink): void {
  for (const reason of REASONS) sink.count('losses', 0, { ...labels, reason })
  for (const was of ['holder', 'waiter']) sink.count('evictions', 0, { ...labels, was })
  for (const outcome of ['acquired', 'busy', 'timeout']) sink.count('requests', 0, { ...labels, outcome })
  sink.count('jeopardies', 0, labels)
  sink.count('queued', 0, labels)
  for (const verb of VERBS)
    for (const outcome of ['ambiguous', 'refused'])
      sink.count('store_errors', 0, { store: labels.store, verb, outcome })
}

const REASONS: readonly LockEvents['lost']['reason'][] = ['expired', 'evicted', 'store-reset']
const VERBS: readonly StoreVerb[] = ['acquire', 'renew', 'release', 'listen', 'inspect', 'evict']
const OLDEST: Readonly<Record<OfKind<'oldest'>, OfKind<'level'>>> = {
  oldest_wait: 'waiting',
  oldest_hold: 'held',
}

type Listeners = { readonly [Name in LockEventName]?: (event: LockEvents[Name]) => void }
type Keyed = Pick<LockEvents['requested'], 'store' | 'key'>
type EndedRequest = Pick<LockEvents['timeout'], 'store' | 'key' | 'id' | 'waitedMs'>
type EndedHold = LockEvents['lost' | 'released' | 'detached']

/** Counts what is present now, by id: what came before the measuring began must not be counted when it leaves. */
class PresenceMeter {
  readonly #name: OfKind<'level'>
  readonly #sink: MeasureSink
  readonly #there = new Map<string, { readonly labels: Labels; readonly since: number }>()
  /** All labels ever used. Those without a present one report 0 seconds, as their last age would stay otherwise. */
  readonly #known = new Set<Labels>()

  constructor(name: OfKind<'level'>, sink: MeasureSink) {
    this.#name = name
    this.#sink = sink
  }

  enter(id: string, labels: Labels): void {
    if (this.#there.has(id)) return
    this.#there.set(id, { labels, since: performance.now() })
    this.#known.add(labels)
    this.#sink.level(this.#name, 1, labels)
  }

  leave(id: string): void {
    const one = this.#there.get(id)
    if (one === undefined) return
    this.#there.delete(id)
    this.#sink.level(this.#name, -1, one.labels)
  }

  oldest(): readonly Reading[] {
    const now = performance.now()
    const began = new Map<Labels, number>()
    for (const { labels, since } of this.#there.values())
      began.set(labels, Math.min(since, began.get(labels) ?? since))
    return Array.from(this.#known, (labels) => ({
      labels,
      seconds: (now - (began.get(labels) ?? now)) / 1000,
    }))
  }

  clear(): void {
    for (const id of [...this.#there.keys()]) this.leave(id)
  }
}
