import assert from 'node:assert/strict'
import { type Ticket, TOMBSTONE_MS } from '../../src/contract/store.ts'
import type { Room, VerbResult } from '../../src/law/room.ts'
import type { Action, Grave, Moment, Observation, Part } from './observation.ts'
import { REASON } from './observation.ts'
import { rules } from './rules.ts'

/** The law under test: the real one, or a mutant of it. */
export type Law = typeof import('../../src/law/room.ts')

type Call = Observation['action']

/**
 * Lets the law act on one room, and checks each step against the rules. It keeps its own record of fences and
 * tombstones, so it notices a law that forgets them.
 */
export class Witness {
  readonly room: Room
  ms = 1_000_000
  readonly #law: Law
  readonly #tickets: readonly Ticket[]
  readonly #reached: ReadonlySet<string>
  readonly #graves = new Map<string, Grave>()
  #highestFence = 0
  #last: { readonly action: Action; readonly answer: unknown } | undefined

  constructor(law: Law, cast: readonly Part[]) {
    this.#law = law
    this.#reached = new Set(cast.flatMap(({ reached }, index) => (reached === true ? [`${index}`] : [])))
    this.room = law.openRoom(0, (id) => this.#reached.has(id))
    this.#tickets = cast.map((part, index) => ({ ...part, key: 'room', id: `${index}`, owner: '{}' }))
  }

  /** Returns what the law answered. */
  step(action: Action): unknown {
    if (action.verb === 'pass') return this.repeat(action)
    const [before, trace, last] = [moment(this.room), this.fingerprint(), this.#last]
    const [graves, highestFence] = [new Map(this.#graves), this.#highestFence]
    const { answer, wakes } = this.#do(action)
    const after = moment(this.room)
    const observation: Observation = {
      action,
      ms: this.ms,
      asking: this.#asking(action),
      answer,
      reached: this.#reached,
      wakes,
      before,
      after,
      admitted: [...after.holders.values()]
        .filter(({ ticket, fence }) => before.holders.get(ticket.id)?.fence !== fence)
        .sort((one, other) => one.fence - other.fence),
      expired: [...before.holders.values()].filter(({ expiresAt }) => expiresAt <= this.ms),
      graves,
      highestFence,
      repeated: JSON.stringify(last?.action) === JSON.stringify(action) ? last : undefined,
      changed: this.fingerprint() !== trace,
    }
    for (const [rule, check] of Object.entries(rules)) {
      try {
        check(observation)
      } catch (error) {
        throw new assert.AssertionError({ message: `${rule}: ${String(error)}\n${JSON.stringify(action)}` })
      }
    }
    return answer
  }

  /** Takes a step without checking it, because it was checked before. */
  repeat(action: Action): void {
    if (action.verb !== 'pass') {
      this.#do(action)
      return
    }
    this.ms += action.ms
    this.#last = undefined
    for (const [id, { until }] of this.#graves) if (until <= this.ms) this.#graves.delete(id)
  }

  /**
   * Everything about the room that can matter later, relative to now. Two rooms with the same fingerprint go the same
   * ways, if the steps of time are either far below or above a thousand milliseconds.
   */
  fingerprint(): string {
    const left = (until: number): number => Math.max(0, until - this.ms)
    const grave = (id: string, { until, evicted }: Grave) => [id, Math.min(left(until), 1_000), evicted]
    return JSON.stringify([
      [...this.room.holders].map(([id, { state, expiresAt, holdUntil, ticket }]) => [
        id,
        state,
        // A lock-delay counts from the expiry, so an expired holder goes on to matter for that long.
        Math.max(-ticket.lockDelayMs, expiresAt - this.ms),
        left(holdUntil),
      ]),
      [...this.room.queue].map(([id, { rememberedUntil, heardAt, ticket }]) => [
        id,
        left(rememberedUntil),
        left(heardAt + ticket.acceptMs),
      ]),
      [...this.room.tombstones].map(([id, tombstone]) => grave(id, tombstone)),
      left(this.room.closedUntil),
      // Whether the next fence follows the last fence or the time. No room admits a thousand tickets in one
      // millisecond.
      this.room.lastFence >= this.ms * 1000,
      // The witness's own record, in case the law has forgotten something.
      [...this.#graves].map(([id, each]) => grave(id, each)),
      this.#highestFence > this.room.lastFence,
    ])
  }

  #do(action: Call): VerbResult<unknown> {
    const outcome = this.#act(action)
    for (const { fence } of this.room.holders.values())
      this.#highestFence = Math.max(this.#highestFence, fence)
    const until = this.ms + TOMBSTONE_MS
    if (action.verb === 'release' && action.cancel)
      this.#graves.set(`${action.who}`, { until, evicted: false })
    if (action.verb === 'evict')
      for (const id of outcome.answer as readonly string[]) this.#graves.set(id, { until, evicted: true })
    this.#last = { action, answer: outcome.answer }
    return outcome
  }

  #act(action: Call): VerbResult<unknown> {
    const time = { ms: this.ms, us: this.ms * 1000 }
    switch (action.verb) {
      case 'acquire':
        return this.#law.acquire(this.room, this.#ticket(action.who), time)
      case 'renew':
        return this.#law.renew(this.room, { ...this.#ticket(action.who), ...ttlOf(action) }, time)
      case 'release':
        return this.#law.release(this.room, { key: 'room', id: `${action.who}`, cancel: action.cancel }, time)
      case 'evict': {
        const id = action.who === undefined ? undefined : `${action.who}`
        return this.#law.evict(this.room, { id, reason: REASON }, time)
      }
      case 'idle':
        return { answer: this.#law.isIdle(this.room, time), wakes: [] }
      default:
        return action satisfies never
    }
  }

  #asking(action: Action): Ticket | undefined {
    if (action.verb === 'acquire') return this.#ticket(action.who)
    return action.verb === 'renew' ? { ...this.#ticket(action.who), ...ttlOf(action) } : undefined
  }

  #ticket(who: number): Ticket {
    const ticket = this.#tickets[who]
    assert.ok(ticket)
    return ticket
  }
}

function ttlOf({ ttlMs }: { readonly ttlMs?: number }): { readonly ttlMs?: number } {
  return ttlMs === undefined ? {} : { ttlMs }
}

function moment({ holders, queue, closedUntil, nextExpiry }: Room): Moment {
  return {
    holders: new Map([...holders].map(([id, holder]) => [id, { ...holder }])),
    queue: new Map([...queue].map(([id, waiter]) => [id, { ...waiter }])),
    closedUntil,
    nextExpiry,
  }
}
