import { checkOptions, parseSignal } from '../base/arguments.ts'
import { paused } from '../base/clock.ts'
import { endedByReturn } from '../base/ended-by-return.ts'
import { type Owner, parseOwner } from '../base/owner.ts'
import { UNLIMITED } from '../contract/store.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { closedDuring } from '../engine/ticket-errors.ts'
import { ClosedError, isHoldfastError } from '../errors.ts'
import { type LocksContext, tryHold } from './hold.ts'
import { roomOf } from './inspected.ts'
import { bellOf, checkValue, type GroupMembership, OwnMembership, rosterOf } from './membership.ts'
import { type HoldOptions, type HoldSettings, parseSettings, SHARED, TAKES } from './options.ts'

/** How to join a group. */
export interface JoinOptions extends Pick<HoldOptions, 'ttl' | 'storeTimeout' | 'signal'> {
  /** What the others see of this member: an address, a load. At most 1,000 characters. Default: nothing. */
  readonly value?: string | undefined
}

/** A member of a group, as every process can see it. */
export interface GroupMember {
  /** Random. It stays the same until the member leaves or is lost. */
  readonly id: string
  /** What the member gave to `join` or `update` last. */
  readonly value: string | undefined
  /** Host, process id and label, for people. */
  readonly owner: Owner
}

/**
 * The processes that are alive, each with a value of its own. Made by `locks.group(key)`. A member that dies leaves the group
 * after its ttl.
 *
 * ```ts
 * import { connect } from 'holdfast'
 *
 * const locks = await connect('memory:')
 * const group = locks.group('renderers')
 * const membership = await group.join({ value: 'http://10.0.0.7:8080' })
 * console.log(await group.members())
 * await membership.leave()
 * await locks.close()
 * ```
 */
export class MemberGroup {
  /** The key of the group. */
  readonly key: string
  readonly #context: LocksContext
  readonly #defaults: HoldSettings

  constructor(context: LocksContext, key: string, defaults: HoldSettings) {
    rosterOf(key)
    this.#context = context
    this.key = key
    this.#defaults = defaults
  }

  /**
   * Makes this process a member, and tells those who observe. Joined twice, it is two members.
   *
   * @throws {StoreError} when the store does not answer within the default `wait`, or refuses; the reason of the `signal`;
   * {@link ClosedError}.
   */
  async join(options: JoinOptions = {}): Promise<GroupMembership> {
    checkOptions(options, ['ttl', 'storeTimeout', 'signal', 'value'])
    const { value, ...rest } = options
    const settings = { ...parseSettings(rest, TAKES.try, this.#settings()), quiet: true }
    const membership = new OwnMembership(this.#context, this.key, settings)
    await membership.join(checkValue(value))
    return membership
  }

  /** Who is in the group now, in no particular order. One request. @throws {StoreError} {@link ClosedError} */
  async members(): Promise<readonly GroupMember[]> {
    return (await this.#look()).members
  }

  /**
   * Yields the members, and then the members again after each change, until the loop ends or `signal` aborts. A slow loop
   * gets the latest members, and not each change. Who joins, leaves or updates its value tells all observers at once. A
   * member that died is missed when its lease runs out. In between, an observer looks about once per ttl.
   *
   * @throws {StoreError} `store-refused`; {@link ClosedError} when the locks are closed. An abort ends the loop without an
   * error. While the store does not answer, nothing is yielded.
   */
  observe(
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<readonly GroupMember[], void, void> {
    checkOptions(options, ['signal'])
    const ending = new AbortController()
    return endedByReturn(this.#observe(parseSignal(options.signal), ending), () => ending.abort())
  }

  async *#observe(
    signal: AbortSignal | undefined,
    ending: AbortController,
  ): AsyncGenerator<readonly GroupMember[], void, void> {
    const { engine } = this.#context
    const onClose = () => ending.abort(closedDuring(this.key, 'observed'))
    const onAbort = { abort: () => ending.abort() }
    if (signal?.aborted === true) return
    engine.onlookers.add(onClose)
    if (signal !== undefined) engine.signals.add(signal, onAbort)
    try {
      yield* this.#changes(ending.signal)
    } finally {
      engine.onlookers.delete(onClose)
      if (signal !== undefined) engine.signals.remove(signal, onAbort)
    }
  }

  /**
   * Each round takes the bell, looks, and rests until somebody rings. The bell is taken before the look, so a change that
   * comes after the look rings it.
   */
  async *#changes(ending: AbortSignal): AsyncGenerator<readonly GroupMember[], void, void> {
    const { engine } = this.#context
    const { clock, chance } = engine
    const settings = { ...this.#settings(), signal: ending }
    let bell: HeldLease | null = null
    let known: string | undefined
    /** Looks in a row without an answer. If a reply is lost, the next look must not wait for it for long. */
    let unanswered = 0
    try {
      while (!ending.aborted) {
        let restMs = SELDOM_MS
        try {
          if (bell?.state !== 'held' && bell?.state !== 'jeopardy') {
            bell = await tryHold(this.#context, { key: bellOf(this.key), shape: SHARED, settings })
          }
          unanswered += 1
          const { members, firstEndMs } = await this.#look({
            limitMs: engine.attemptMs(unanswered),
            signal: ending,
          })
          unanswered = 0
          restMs = Math.max(SHORTEST_LOOK_MS, Math.min(firstEndMs, settings.ttlMs)) * (1 + chance() / 20)
          const seen = JSON.stringify(members)
          // The abort may come between the answer and this step.
          if (seen !== known && !ending.aborted) {
            known = seen
            yield members
          }
        } catch (error) {
          if (ending.aborted) break
          // Somebody rang while the bell was taken.
          if (isHoldfastError(error, 'lease-lost')) restMs = 0
          else if (!isHoldfastError(error, 'store-unavailable')) throw error
        }
        // If many join at the same time, all of them ring.
        await paused(clock, PACE_MS, ending)
        await paused(clock, restMs, ending, bell?.signal)
      }
    } finally {
      void bell?.release()
    }
    if (ending.reason instanceof ClosedError) throw ending.reason
  }

  async #look(
    options: { readonly limitMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<{ readonly members: readonly GroupMember[]; readonly firstEndMs: number }> {
    const holders = (await roomOf(this.#context.engine, rosterOf(this.key), options))?.holders ?? []
    const members = new Map<string, GroupMember>()
    let firstEndMs = Number.POSITIVE_INFINITY
    // While a member replaces its value it has two tickets. The one that came last counts.
    const inOrder = holders.toSorted((a, b) => b.heldMs - a.heldMs || Number(a.fence - b.fence))
    for (const { limit, state, owner, id, remainingMs } of inOrder) {
      if (limit !== UNLIMITED || state !== 'held') continue
      const { value, member = id, ...facts } = parseOwner(owner)
      members.set(member, { id: member, value, owner: facts })
      firstEndMs = Math.min(firstEndMs, remainingMs)
    }
    const byId = Array.from(members.values()).sort((a, b) => (a.id < b.id ? -1 : 1))
    return { members: byId, firstEndMs }
  }

  #settings(): HoldSettings {
    return {
      ...this.#defaults,
      renew: true,
      maxHoldMs: Number.POSITIVE_INFINITY,
      minHoldMs: 0,
      lockDelayMs: 0,
      quiet: true,
    }
  }
}

/** Rests between two looks: after the first of several rings, without an answer, and before a lease that is nearly over. */
const PACE_MS = 100
const SELDOM_MS = 1000
const SHORTEST_LOOK_MS = 250
