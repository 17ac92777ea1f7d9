import fc from 'fast-check'
import { UNLIMITED } from '../../src/contract/store.ts'
import type { Action, Part } from './observation.ts'

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
    reached: fc.boolean(),
  })
  .map(({ share, ...terms }) => ({ ...share, ...terms, acceptMs: Math.min(terms.acceptMs, terms.ttlMs) }))

/** Two to six tickets of any kinds. */
export const cast: fc.Arbitrary<Part[]> = fc.array(part, { minLength: 2, maxLength: 6 })
const who = fc.nat(5)
const renew: fc.Arbitrary<Action> = fc.record(
  { verb: fc.constant('renew' as const), who, ttlMs: fc.integer({ min: 1, max: 60 }) },
  { requiredKeys: ['verb', 'who'] },
)
/** One call, or some time that passes. */
export const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ verb: fc.constant('acquire' as const), who }) },
  { weight: 2, arbitrary: renew },
  { weight: 4, arbitrary: fc.record({ verb: fc.constant('release' as const), who, cancel: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ verb: fc.constant('evict' as const), who: fc.option(who, { nil: undefined }) }),
  },
  { weight: 1, arbitrary: fc.constantFrom<Action[]>({ verb: 'idle' }, { verb: 'pass', ms: 60_000 }) },
  {
    weight: 4,
    arbitrary: fc.record({ verb: fc.constant('pass' as const), ms: fc.integer({ min: 1, max: 70 }) }),
  },
)

/** Keeps only the actions whose tickets the cast has. */
export function present(step: Action, parts: readonly Part[]): Action {
  return 'who' in step && step.who !== undefined ? { ...step, who: step.who % parts.length } : step
}
