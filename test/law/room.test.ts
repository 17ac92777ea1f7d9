import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type AcquireAnswer, UNLIMITED } from '../../src/contract/store.ts'
import * as law from '../../src/law/room.ts'
import type { Action, Part } from './observation.ts'
import { Witness } from './witness.ts'

const part: fc.Arbitrary<Part> = fc
  .record({
    share: fc.constantFrom(
      { units: 1, limit: 1 },
      { units: 1, limit: UNLIMITED },
      { units: 1, limit: 2 },
      { units: 2, limit: 3 },
      { units: 3, limit: 3 },
    ),
    ttlMs: fc.integer({ min: 1, max: 60 }),
    acceptMs: fc.integer({ min: 1, max: 60 }),
    patienceMs: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 90 }), fc.constant(10_000)),
    minHoldMs: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 50 })),
    lockDelayMs: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 50 })),
  })
  .map(({ share, ...terms }) => ({ ...share, ...terms, acceptMs: Math.min(terms.acceptMs, terms.ttlMs) }))

const cast = fc.array(part, { minLength: 2, maxLength: 6 })
const who = fc.nat(5)
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ verb: fc.constant('acquire' as const), who }) },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant('renew' as const), who }) },
  { weight: 4, arbitrary: fc.record({ verb: fc.constant('release' as const), who, cancel: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ verb: fc.constant('evict' as const), who: fc.option(who, { nil: undefined }) }),
  },
  { weight: 1, arbitrary: fc.constant({ verb: 'idle' as const }) },
  {
    weight: 4,
    arbitrary: fc.record({ verb: fc.constant('pass' as const), ms: fc.integer({ min: 1, max: 70 }) }),
  },
)

describe('a room', () => {
  test('keeps the rules through long histories of all kinds of tickets', () => {
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 80, size: 'max' }), (parts, actions) => {
        const witness = new Witness(law, parts)
        for (const step of actions) witness.step(present(step, parts))
      }),
      { numRuns: 2_000 },
    )
  })

  test('shows itself without changing, and shows nothing that is over', () => {
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 60, size: 'max' }), (parts, actions) => {
        const witness = new Witness(law, parts)
        for (const step of actions) {
          witness.step(present(step, parts))
          const { room, ms } = witness
          const before = witness.fingerprint()
          const view = law.view(room, 'room', { ms, us: ms * 1000 })
          expect(witness.fingerprint()).toBe(before)
          const holders = [...room.holders.values()].filter(({ expiresAt }) => expiresAt > ms)
          const queue = [...room.queue.values()].filter(({ rememberedUntil }) => rememberedUntil > ms)
          expect(view.holders).toEqual(
            holders.map(({ ticket: { id, units, limit, owner }, fence, since, expiresAt, state }) => ({
              ...{ id, units, limit, owner, state },
              fence: BigInt(fence),
              heldMs: ms - since,
              remainingMs: expiresAt - ms,
            })),
          )
          expect(view.queue).toEqual(
            queue.map(({ ticket: { id, units, limit, owner }, since }) => ({
              ...{ id, units, limit, owner },
              waitedMs: ms - since,
            })),
          )
        }
      }),
      { numRuns: 500 },
    )
  })

  test('serves everybody who keeps asking, in order, although no wake arrives and no holder is heard of again', () => {
    let waiters = 0
    fc.assert(
      fc.property(cast, fc.array(action, { maxLength: 40, size: 'max' }), (parts, actions) => {
        // Terms of one or two milliseconds leave no time to ask in between.
        const patient = parts.map((each) => ({
          ...each,
          ttlMs: Math.max(each.ttlMs, 3),
          acceptMs: Math.max(each.acceptMs, 3),
          patienceMs: Math.max(each.patienceMs, 30),
        }))
        const witness = new Witness(law, patient)
        for (const step of actions) witness.step(present(step, patient))
        const time = { ms: witness.ms, us: witness.ms * 1000 }
        const waiting = law.view(witness.room, 'room', time).queue.map(({ id }) => Number(id))
        expect(served(witness, waiting)).toEqual(waiting)
        waiters += waiting.length
      }),
      { numRuns: 3_000 },
    )
    expect(waiters).toBeGreaterThan(500)
  })
})

/** Lets waiters ask only when they were told to, and returns them in the order in which they came to hold. */
function served(witness: Witness, waiting: readonly number[]): readonly number[] {
  const askAt = new Map(waiting.map((each) => [each, witness.ms]))
  const fences: { readonly id: number; readonly fence: bigint }[] = []
  for (let turns = 0; askAt.size > 0 && turns < 5_000; turns += 1) {
    const at = Math.min(...askAt.values())
    if (at > witness.ms) witness.step({ verb: 'pass', ms: at - witness.ms })
    for (const id of [...askAt.keys()].reverse().filter((each) => askAt.get(each) === at)) {
      const answer = witness.step({ verb: 'acquire', who: id }) as AcquireAnswer
      if (answer.tag === 'queued') askAt.set(id, witness.ms + answer.askAgainMs)
      else askAt.delete(id)
      if (answer.tag === 'held') fences.push({ id, fence: answer.fence })
    }
  }
  return fences.sort((one, other) => (one.fence < other.fence ? -1 : 1)).map(({ id }) => id)
}

/** Names only tickets that the cast has. */
function present(step: Action, parts: readonly Part[]): Action {
  return 'who' in step && step.who !== undefined ? { ...step, who: step.who % parts.length } : step
}
