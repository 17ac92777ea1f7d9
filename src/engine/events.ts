import { type Channel, channel, subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expected, parseFunction } from '../base/arguments.ts'
import { runAround, type Wrap } from '../base/around.ts'
import { lastOwner } from '../base/owner.ts'
import { reportOf } from '../base/thrown.ts'
import type { Clock } from '../contract/clock.ts'
import type { Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import { isLater } from './later.ts'
import type { LockEventName, LockEvents, StoreVerb } from './lock-events.ts'

/** The ticket that an event is about. `quiet`: it is one of ours beside the caller's key, and no event is told of it. */
interface Subject {
  readonly ticket: Ticket
  readonly lease: { readonly quiet?: boolean | undefined }
}

/** The origin of an event, which every event of an engine has. */
interface Source {
  readonly store: string
  readonly clock: Clock
}

/**
 * Tells the events of one engine in their order. A listener may cause another event while the first one is told. It is told when all
 * listeners have heard of the first one. With `atOnce` that is before the listener goes on: the others hear of the first event then.
 */
class Telling {
  readonly #calls: (() => void)[] = []
  #isTelling = false

  tell(calls: readonly (() => void)[], { atOnce }: { readonly atOnce: boolean }): void {
    this.#calls.push(...calls)
    const inside = this.#isTelling
    if (inside && !atOnce) return
    this.#isTelling = true
    try {
      for (let call = this.#calls.shift(); call !== undefined; call = this.#calls.shift()) call()
    } finally {
      this.#isTelling = inside
    }
  }
}

type Listener = (event: never) => void

/** An event of an engine: its listeners and its diagnostics channel. */
class Topic<Name extends LockEventName> {
  readonly #name: Name
  readonly #source: Source
  readonly #telling: Telling
  readonly #channel: Channel
  /** Replaced and never changed, so that a listener may be removed while an event is told. */
  #listeners: readonly Listener[] | undefined

  constructor(name: Name, source: Source, telling: Telling) {
    this.#name = name
    this.#source = source
    this.#telling = telling
    this.#channel = channel(channelName(name))
  }

  /** Asked before an event is prepared: as a rule nobody listens, and a lock does not pay for events then. */
  get isHeard(): boolean {
    return this.#listeners !== undefined || this.#channel.hasSubscribers
  }

  on(listener: Listener): () => void {
    this.#listeners = [...(this.#listeners ?? []), listener]
    return () => {
      const left = this.#listeners?.filter((one) => one !== listener) ?? []
      this.#listeners = left.length === 0 ? undefined : left
    }
  }

  tell({ ticket, lease }: Subject, details: Details<Name>): void {
    if (lease.quiet === true || !this.isHeard) return
    const { key, id, units, limit, owner } = ticket
    const { store, clock } = this.#source
    const at = clock.wallMs()
    const event = { event: this.#name, store, at, key, id, units, limit, owner: lastOwner(owner) }
    this.#tell(Object.assign(event, details))
  }

  publish(content: object): void {
    const { store, clock } = this.#source
    this.#tell(Object.assign({ event: this.#name, store, at: clock.wallMs() }, content))
  }

  #tell(event: object): void {
    const calls = this.#listeners?.map((listener) => () => {
      // It may have been removed by a listener before it.
      if (this.#listeners?.includes(listener)) listener(event as never)
    })
    const publish = () => {
      if (this.#channel.hasSubscribers) this.#channel.publish(event)
    }
    this.#telling.tell([...(calls ?? []), publish], { atOnce: BELONGS_TO_CALLER.has(this.#name) })
  }
}

/**
 * The events that are told before the call goes on, also in a listener: `requested` has to be told in the caller's async
 * context, and what a callback runs inside of has to be known before it runs.
 */
const BELONGS_TO_CALLER: ReadonlySet<LockEventName> = new Set(['requested', 'working'])

/** A lease under which work is about to run. */
export interface Working extends Subject {
  readonly fence: bigint
}

/** Runs the work inside of what the listeners to `working` wrap around it, for one lease or for several that are held together. */
export function observed<T>({ working }: Events, leases: readonly Working[], work: () => T): T {
  const tells = leases.map(({ fence, ...subject }) => (around: (wrap: Wrap) => void) => {
    working.tell(subject, { fence, around })
  })
  return runAround(work, attempt, tells)
}

/** The fields of a ticket's event besides those of the ticket. */
type Details<Name extends LockEventName> = Omit<
  LockEvents[Name],
  'event' | 'store' | 'at' | 'key' | 'id' | 'units' | 'limit' | 'owner'
>

export type Events = { readonly [Name in LockEventName]: Topic<Name> }

export function createEvents(source: Source): Events {
  const telling = new Telling()
  return Object.fromEntries(
    names.map((name) => [name, new Topic(name, source, telling)]),
  ) as unknown as Events
}

/** @throws {InvalidArgumentError} */
export function listen<Name extends LockEventName>(
  events: Events,
  name: Name,
  listener: (event: LockEvents[Name]) => void,
): () => void {
  check(name, listener)
  return events[name].on(guarded(name, listener))
}

export function tellStoreError(events: Events, failure: StoreFailure): void {
  const topic = events['store-error']
  if (!topic.isHeard) return
  const { verb, error, key, id } = failure
  const outcome = isHoldfastError(error, 'store-refused') ? 'refused' : 'ambiguous'
  topic.publish({ verb, outcome, error, key, id })
}

interface StoreFailure {
  readonly verb: StoreVerb
  /** `undefined`: no answer in time. */
  readonly error: unknown
  readonly key?: string | undefined
  readonly id?: string | undefined
}

/** The events of all locks of this process, whoever made them. */
export interface ProcessEvents {
  /** The names of all events, to listen to each. */
  readonly names: readonly LockEventName[]
  /**
   * Calls `listener` for each event. Returns a function that removes it. The listener runs synchronously: keep it short. What
   * it throws becomes a process warning and does not affect the lock.
   *
   * @throws {InvalidArgumentError} when there is no such event.
   */
  on<Name extends LockEventName>(event: Name, listener: (event: LockEvents[Name]) => void): () => void
}

const NAMES: Readonly<Record<LockEventName, true>> = {
  requested: true,
  queued: true,
  busy: true,
  acquired: true,
  timeout: true,
  withdrawn: true,
  adopted: true,
  renewed: true,
  jeopardy: true,
  lost: true,
  released: true,
  detached: true,
  evicted: true,
  'store-error': true,
  elected: true,
  resigned: true,
  working: true,
}
const names = Object.keys(NAMES) as readonly LockEventName[]

/** The events of all locks of this process, whichever `createLocks` they belong to; {@link LockEvents} lists them. */
export const lockEvents: ProcessEvents = {
  names,
  on(name, listener) {
    check(name, listener)
    const call = guarded(name, listener)
    const subscriber = (event: unknown) => call(event as never)
    subscribe(channelName(name), subscriber)
    return () => {
      unsubscribe(channelName(name), subscriber)
    }
  },
}

function channelName(name: LockEventName): string {
  return `holdfast:${name}`
}

function check(name: unknown, listener: unknown): void {
  if (typeof name !== 'string' || !Object.hasOwn(NAMES, name)) {
    throw expected('event', `one of ${names.join(', ')}`, name)
  }
  parseFunction('listener', listener)
}

/**
 * All callbacks share one guard, because a listener passes a new `wrap` for each: the guard warns of a failure once.
 */
const attempt = guarded('working', (step: () => void) => step())

/** A listener that cannot harm the lock or the process. Only its first failure is warned of, as they may come in thousands. */
function guarded<Event>(name: LockEventName, listener: (event: Event) => unknown): (event: Event) => void {
  let warned = false
  const warn = (error: unknown) => {
    if (warned) return
    warned = true
    const detail = reportOf(error)
    process.emitWarning(`A listener to the event \`${name}\` failed; the lock goes on.`, {
      type: 'HoldfastWarning',
      detail,
    })
  }
  return (event) => {
    try {
      const result = listener(event)
      if (isLater(result)) result.then(undefined, warn)
    } catch (error) {
      warn(error)
    }
  }
}
