import { UNLIMITED } from '../../src/contract/store.ts'
import type { Action, Part } from './observation.ts'
import { type Law, Witness } from './witness.ts'

/** Three tickets of a kind each: small enough that everything that can happen to them is tried. */
export const smallRooms: Readonly<Record<string, readonly Part[]>> = {
  'three mutexes': [part({}), part({ acceptMs: 1 }), part({ patienceMs: 6 })],
  'two readers and a writer': [part({ limit: UNLIMITED }), part({ limit: UNLIMITED, ttlMs: 2 }), part({})],
  'a semaphore of two, one of them wide': [
    part({ limit: 2 }),
    part({ limit: 2 }),
    part({ units: 2, limit: 2 }),
  ],
  'limits that differ': [part({ limit: 2 }), part({ limit: 3 }), part({ units: 3, limit: 5 })],
  'a minimum hold': [part({ minHoldMs: 3 }), part({ minHoldMs: 5, ttlMs: 2 }), part({ patienceMs: 0 })],
  'a lock-delay': [
    part({ lockDelayMs: 3 }),
    part({ lockDelayMs: 1, limit: 2 }),
    part({ limit: 2, minHoldMs: 3 }),
  ],
}

/**
 * Takes every sequence of actions up to a depth and holds each step against the rules. Sequences that lead to the same
 * room are taken on only once. Returns how many different rooms there were.
 */
export function exploreRoom(law: Law, cast: readonly Part[], depth: number): number {
  const actions = actionsOf(cast)
  const seen = new Set<string>()
  let edge: (readonly Action[])[] = [[]]
  for (let reached = 0; reached < depth; reached += 1) {
    const next: (readonly Action[])[] = []
    for (const path of edge) {
      for (const action of actions) {
        const witness = new Witness(law, cast)
        for (const step of path) witness.repeat(step)
        try {
          witness.step(action)
        } catch (error) {
          throw new Error(`After ${JSON.stringify(path)}`, { cause: error })
        }
        // The last action is part of it: only then is each one also tried twice in a row.
        const state = JSON.stringify(action) + witness.fingerprint()
        if (seen.has(state)) continue
        seen.add(state)
        next.push([...path, action])
      }
    }
    edge = next
  }
  return seen.size
}

function actionsOf(cast: readonly Part[]): readonly Action[] {
  const everyone = cast.map((_, index) => index)
  return [
    ...everyone.map((who): Action => ({ verb: 'acquire', who })),
    ...everyone.map((who): Action => ({ verb: 'renew', who })),
    ...everyone.map((who): Action => ({ verb: 'release', who, cancel: false })),
    { verb: 'release', who: 0, cancel: true },
    { verb: 'evict', who: 1 },
    { verb: 'evict', who: undefined },
    { verb: 'idle' },
    { verb: 'pass', ms: 1 },
    { verb: 'pass', ms: 3 },
    { verb: 'pass', ms: 60_000 },
  ]
}

function part(draft: Partial<Part>): Part {
  return {
    units: 1,
    limit: 1,
    ttlMs: 4,
    acceptMs: 2,
    patienceMs: 3,
    minHoldMs: 0,
    lockDelayMs: 0,
    ...draft,
  }
}
