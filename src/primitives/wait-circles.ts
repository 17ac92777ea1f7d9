import type { Instant } from '../base/clock.ts'
import { processWide } from '../base/process-wide.ts'
import type { Store, Ticket } from '../contract/store.ts'
import type { WaitWatch } from '../engine/acquire-request.ts'
import type { Engine } from '../engine/engine.ts'
import type { ClockSample } from '../engine/granted-at.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { now } from '../engine/instant.ts'
import { isUsedUp } from '../engine/lease-deadline.ts'
import { DeadlockError } from '../errors.ts'
import { Sum } from '../law/law.ts'

/** One callback of a callback form (`withLock(key, work)`) while it runs under its lease. */
export interface Scope {
  readonly engine: Engine
  readonly lease: HeldLease
  /** The scope around it, if it still holds. */
  outer: Scope | undefined
  /** The waits of calls inside this scope. The scope is assumed not to end before they do. */
  waits: Set<Wait> | undefined
}

/**
 * Finds the calls of this process that wait for one another. Only what blocks a wait until a call of the circle gives up counts:
 *
 * - The scopes that hold the key under the deadlines of their leases, all together. A lease without a scope, or of another process,
 *   may end at any time.
 * - The waits that stand ahead in the queue and do not give up before, if these holders do not admit them: the law lets nobody
 *   overtake.
 *
 * Such a wait is stuck if the holders that are stuck do not admit it, or do not admit one ahead of it. A scope is stuck if a
 * wait inside it is. So the stuck waits are the largest set in which each is stuck because of the others. Without the newest
 * wait this set is empty, because the wait that would fill it was refused. So only a new place in a queue has to be checked.
 */
export class Wait implements WaitWatch {
  readonly ticket: Ticket
  /** Undefined: outside of all scopes. It may stand ahead of others, and is never refused. */
  readonly scope: Scope | undefined
  /** How long the call waits at most. Public, because {@link obstacle} reads it from waits of the package's other copy, too. */
  readonly waitMs: number
  /** Waits with a place up to this one were in their queues before the request of this wait was sent. */
  readonly #sentAfter: number = known.places
  readonly #engine: Engine
  /** Its place in the order in which this process heard of waits. 0: it is not known to be in a queue. */
  place = 0
  /** When the store was last asked. Undefined: its answers do not prove the order of the queue. */
  #askedAt: Instant | undefined
  /** All scopes whose `waits` contain this wait. Some of them may leave the chain of `outer` later. */
  #within: Scope[] | undefined
  /** Where the call waits. */
  stack: Error | undefined

  constructor(engine: Engine, { ticket, waitMs }: WaitTerms, scope: Scope | undefined) {
    this.#engine = engine
    this.ticket = ticket
    this.waitMs = waitMs
    this.scope = scope
  }

  queued(place: 'new' | 'same', sample: ClockSample | undefined): DeadlockError | undefined {
    const { scope, ticket } = this
    // A store that tells its time admits from one queue. On Redlock a waiter may lose its place without an answer that says so.
    const askedAt = sample?.askedAt
    // If the store may have dropped it meanwhile, a request that was sent twice may have given it a new place.
    if (place === 'same' && this.isSurelyQueued()) {
      this.#askedAt = askedAt
      return undefined
    }
    if (scope === undefined && askedAt === undefined) return undefined
    this.left()
    this.#enter(askedAt)
    if (scope === undefined) return undefined
    this.stack ??= new Error(`Waits for ${JSON.stringify(ticket.key)} here`)
    const circle = findCircle(this)
    return circle && deadlockOf(circle)
  }

  left(): void {
    if (this.place === 0) return
    this.place = 0
    const { store } = this.#engine
    removeFrom(store, this.ticket.key, ({ waits }) => waits.delete(this))
    for (const scope of this.#within ?? []) {
      scope.waits?.delete(this)
      if (scope.waits === undefined || scope.waits.size === 0)
        removeFrom(scope.engine.store, scope.lease.key, ({ holders }) => holders.delete(scope))
    }
    this.#within = undefined
  }

  /**
   * Whether the store has the ticket in its queue: it keeps a waiter for its acceptance term after it has heard of it. The time is
   * measured as that of a lease.
   */
  isSurelyQueued(): boolean {
    const { clock, store } = this.#engine
    const { acceptMs, patienceMs } = this.ticket
    if (this.place === 0 || this.#askedAt === undefined) return false
    return !isUsedUp(Math.min(acceptMs, patienceMs), this.#askedAt, now(clock, store))
  }

  /** Whether calls wait for a key that its scopes hold. If not, it closes no circle, and a look at its own key is spared. */
  isWaitedFor(): boolean {
    const within = this.#within ?? NO_SCOPES
    return within.some(({ engine, lease }) => (keysOf(engine.store).get(lease.key)?.waits.size ?? 0) > 0)
  }

  /** The scopes of this process that hold its key, and that contain waits. */
  holders(): readonly Scope[] {
    return [...(this.#knownKey?.holders ?? NO_SCOPES)].filter(isHeld)
  }

  /** What stands between this wait and its key, as long as these scopes hold the key. */
  obstacle(holders: readonly Scope[]): 'holders' | 'queue' | undefined {
    if (holders.length === 0) return undefined
    const sum = sumOf(holders)
    if (!sum.admits(this.ticket)) return 'holders'
    for (const wait of this.#knownKey?.waits ?? []) {
      if (wait.place > this.#sentAfter) break
      // A call that waits for less gives up first, and lets this one go on.
      const isPatient = wait !== this && wait.waitMs >= this.waitMs
      if (isPatient && !sum.admits(wait.ticket) && wait.isSurelyQueued()) return 'queue'
    }
    return undefined
  }

  get #knownKey(): KnownKey | undefined {
    return keysOf(this.#engine.store).get(this.ticket.key)
  }

  #enter(askedAt: Instant | undefined): void {
    const { ticket } = this
    known.places += 1
    this.place = known.places
    this.#askedAt = askedAt
    keyOf(this.#engine.store, ticket.key).waits.add(this)
    this.#within = []
    for (let scope = this.scope; scope !== undefined; scope = scope.outer) {
      scope.waits ??= new Set()
      scope.waits.add(this)
      this.#within.push(scope)
      keyOf(scope.engine.store, scope.lease.key).holders.add(scope)
    }
  }
}

/** What a wait is about. */
export interface WaitTerms {
  readonly ticket: Ticket
  readonly waitMs: number
}

/** What this process knows of the waits for one key. */
interface KnownKey {
  /** The scopes under a lease on the key that contain waits. Only these can be part of a circle. */
  readonly holders: Set<Scope>
  /** By their places, which is also the order in which they are put here. */
  readonly waits: Set<Wait>
}

const known = processWide('known waits', () => ({
  byStore: new WeakMap<Store, Map<string, KnownKey>>(),
  /** The last place that was given. */
  places: 0,
}))

const NO_SCOPES: readonly Scope[] = []

function keysOf(store: Store): Map<string, KnownKey> {
  let keys = known.byStore.get(store)
  if (keys === undefined) {
    keys = new Map()
    known.byStore.set(store, keys)
  }
  return keys
}

function keyOf(store: Store, key: string): KnownKey {
  const keys = keysOf(store)
  let one = keys.get(key)
  if (one === undefined) {
    one = { holders: new Set(), waits: new Set() }
    keys.set(key, one)
  }
  return one
}

function removeFrom(store: Store, key: string, remove: (known: KnownKey) => void): void {
  const keys = keysOf(store)
  const one = keys.get(key)
  if (one === undefined) return
  remove(one)
  if (one.holders.size === 0 && one.waits.size === 0) keys.delete(key)
}

/** Whether calls in this scope count as calls under its lease. */
export function isHeld({ lease }: Scope): boolean {
  const { state } = lease
  return (state === 'held' || state === 'jeopardy') && lease.takesInner
}

/** What these scopes hold together. Several scopes may run under one lease. */
function sumOf(holders: readonly Scope[]): Sum {
  const sum = new Sum()
  for (const lease of new Set(holders.map((holder) => holder.lease))) sum.add(lease.ticket)
  return sum
}

/** One wait of a circle, and what stands between it and its key. The next one is inside a scope that is in its way. */
interface Side {
  readonly wait: Wait
  readonly obstacle: 'holders' | 'queue'
}

/** The circle that the newest wait has closed, if it has. It is the first side. */
function findCircle(start: Wait): readonly Side[] | undefined {
  const holders = start.isWaitedFor() ? holdersOnTheWay(start) : undefined
  if (holders === undefined) return undefined
  const stuck = new Set(holders.keys())
  const stuckHolders = (wait: Wait): readonly Scope[] =>
    (holders.get(wait) ?? NO_SCOPES).filter((holder) => hasAny(holder.waits, stuck))
  // Those furthest from the start first: what they set free reaches the start in the same turn.
  const furthestFirst = [...stuck].reverse()
  for (let isChanged = true; isChanged; ) {
    isChanged = false
    for (const wait of furthestFirst) {
      if (!stuck.has(wait) || wait.obstacle(stuckHolders(wait)) !== undefined) continue
      if (wait === start) return undefined
      stuck.delete(wait)
      isChanged = true
    }
  }
  return shortestCircle(start, stuck, stuckHolders)
}

/**
 * The waits that this one may depend on, each with the scopes that hold its key, in the order of their distance. Undefined: it
 * cannot depend on itself.
 */
function holdersOnTheWay(start: Wait): ReadonlyMap<Wait, readonly Scope[]> | undefined {
  const holders = new Map<Wait, readonly Scope[]>()
  const pending = new Set([start])
  let returns = false
  // A set that grows is walked through to its end.
  for (const wait of pending) {
    const mine = wait.holders()
    holders.set(wait, mine)
    for (const { waits } of mine) {
      for (const next of waits ?? []) {
        if (next === start) returns = true
        pending.add(next)
      }
    }
  }
  return returns ? holders : undefined
}

function hasAny(waits: ReadonlySet<Wait> | undefined, among: ReadonlySet<Wait>): boolean {
  for (const wait of waits ?? []) if (among.has(wait)) return true
  return false
}

function shortestCircle(
  start: Wait,
  stuck: ReadonlySet<Wait>,
  stuckHolders: (wait: Wait) => readonly Scope[],
): readonly Side[] | undefined {
  const comingFrom = new Map<Wait, Wait | undefined>([[start, undefined]])
  for (const wait of comingFrom.keys()) {
    for (const { waits } of stuckHolders(wait)) {
      for (const next of waits ?? []) {
        if (next === start) return sidesUpTo(wait, comingFrom, stuckHolders)
        if (stuck.has(next) && !comingFrom.has(next)) comingFrom.set(next, wait)
      }
    }
  }
  return undefined
}

function sidesUpTo(
  last: Wait,
  comingFrom: ReadonlyMap<Wait, Wait | undefined>,
  stuckHolders: (wait: Wait) => readonly Scope[],
): readonly Side[] {
  const sides: Side[] = []
  for (let wait: Wait | undefined = last; wait !== undefined; wait = comingFrom.get(wait))
    sides.unshift({ wait, obstacle: wait.obstacle(stuckHolders(wait)) ?? 'holders' })
  return sides
}

function deadlockOf(circle: readonly Side[]): DeadlockError {
  const [first, ...others] = circle.map(({ wait }) => wait)
  const key = first?.ticket.key
  if (others.length === 0) {
    return new DeadlockError(
      `This async context holds ${JSON.stringify(key)} already, by another \`Locks\` object on the same store, so waiting for it again may never end. Pass the lease along, or use one \`Locks\` object.`,
      { key },
    )
  }
  return new DeadlockError(
    `Calls in this process wait for one another: ${circle.map(textOf).join(', ')}. Take several keys with withLocks([…]), or always in the same order.`,
    { key, cause: others.at(-1)?.stack },
  )
}

function textOf({ wait, obstacle }: Side): string {
  const behind = obstacle === 'queue' ? ' behind another call' : ''
  return `one holds ${keysHeldIn(wait.scope)} and waits for ${JSON.stringify(wait.ticket.key)}${behind}`
}

function keysHeldIn(innermost: Scope | undefined): string {
  const keys: string[] = []
  for (let scope = innermost; scope !== undefined; scope = scope.outer) {
    if (isHeld(scope)) keys.unshift(JSON.stringify(scope.lease.key))
  }
  return keys.join(' and ')
}
