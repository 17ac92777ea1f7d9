import { expected } from '../base/arguments.ts'
import { withFacts } from '../base/owner.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { LeaseLostError } from '../errors.ts'
import { hold, type LocksContext } from './hold.ts'
import { type HoldSettings, markedKey, SHARED } from './options.ts'

/** What `group.join()` returns: this process is a member until it leaves, or until its lease is lost. */
export interface GroupMembership extends AsyncDisposable {
  /** The id by which the others see this member. */
  readonly id: string
  /**
   * Aborts when the lease of this membership is lost: its process was paused, or the store was away, for longer than the ttl.
   * Then the others see this member no more. Join again.
   */
  readonly signal: AbortSignal
  /**
   * Replaces the value. The member is in the group all the time.
   *
   * @throws {LeaseLostError} when the membership is over, or this process leaves meanwhile; {@link StoreError} when the store does not
   * answer. The old value stays.
   */
  update(value: string | undefined): Promise<void>
  /** Leaves the group. Never rejects. A second call resolves with the first one. */
  leave(): Promise<void>
}

/** The key that all members of a group hold as readers. The owner of each ticket has the member's id and value. */
export function rosterOf(key: string): string {
  return markedKey(key, '#members')
}

/** The key that all observers hold as readers. To evict them from it is to ring: they look who is in the group. */
export function bellOf(key: string): string {
  return markedKey(key, '#bell')
}

/** Each value has a ticket of its own, because the owner of a ticket cannot change. */
export class OwnMembership implements GroupMembership {
  readonly id: string
  readonly #context: LocksContext
  readonly #key: string
  readonly #settings: HoldSettings
  /** Aborts when the lease is lost. */
  readonly #ending = new AbortController()
  readonly #leaving = new AbortController()
  /** Ends the wait of an update for the store. */
  readonly #over = AbortSignal.any([this.#ending.signal, this.#leaving.signal])
  #lease: HeldLease | undefined
  /** Resolves when this process has left. */
  #left: Promise<void> | undefined
  /** The last of the updates. They run one after the other, so that the last value stays. */
  #updating: Promise<unknown> = Promise.resolve()

  constructor(context: LocksContext, key: string, settings: HoldSettings) {
    this.id = context.nextId()
    this.#context = context
    this.#key = key
    this.#settings = settings
  }

  get signal(): AbortSignal {
    return this.#ending.signal
  }

  async join(value: string | undefined): Promise<void> {
    await this.#take(value, this.#settings)
    await this.#ring('a member joined')
  }

  async update(value: string | undefined): Promise<void> {
    checkValue(value)
    const update = this.#updating.then(() => this.#replace(value))
    this.#updating = update.catch(() => {})
    return update
  }

  leave(): Promise<void> {
    this.#left ??= this.#leave()
    return this.#left
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.leave()
  }

  async #leave(): Promise<void> {
    // An update waits for a silent store for as long as `wait`. It must not delay the end.
    this.#leaving.abort(hasLeft(this.#key))
    await this.#updating
    await this.#lease?.release()
    await this.#ring('a member left')
  }

  async #replace(value: string | undefined): Promise<void> {
    this.#over.throwIfAborted()
    const before = this.#lease
    await this.#take(value, { ...this.#settings, signal: this.#over })
    await before?.release()
    await this.#ring('a member has another value')
    this.#ending.signal.throwIfAborted()
  }

  async #take(value: string | undefined, settings: HoldSettings): Promise<void> {
    const { owner } = this.#context
    const context = { ...this.#context, owner: withFacts(owner, { value, member: this.id }) }
    const lease = await hold(context, { key: rosterOf(this.#key), shape: SHARED, settings })
    // It may have ended in the microtasks between the grant and here.
    if (settings.signal?.aborted === true) {
      await lease.release()
      throw settings.signal.reason
    }
    this.#lease = lease
    const onLost = () => {
      // A ticket that was replaced says nothing about this member.
      if (this.#lease === lease && !this.#leaving.signal.aborted) this.#ending.abort(lease.signal.reason)
    }
    if (lease.signal.aborted) onLost()
    else lease.signal.addEventListener('abort', onLost, { once: true })
  }

  /** If nobody hears it, the observers notice the change when they look the next time. */
  async #ring(reason: string): Promise<void> {
    const { engine } = this.#context
    const request = { key: bellOf(this.#key), id: undefined, reason }
    try {
      await engine.ask('evict', () => engine.store.evict(request), {
        limitMs: engine.attemptMs(1),
        key: request.key,
      })
    } catch {
      // The store is away, or these locks are closed.
    }
  }
}

function hasLeft(key: string): LeaseLostError {
  return new LeaseLostError(`This process has left the group ${JSON.stringify(key)}. Join again.`, {
    key,
    reason: 'released',
  })
}

export function checkValue(value: unknown): string | undefined {
  if (value === undefined || (typeof value === 'string' && value.length <= 1000)) return value
  throw expected('value', 'a text of at most 1000 characters', value)
}
