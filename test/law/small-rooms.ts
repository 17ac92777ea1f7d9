import { UNLIMITED } from '../../src/contract/store.ts'
import type { Action, Part } from './observation.ts'
import { type Law, Witness } from './witness.ts'

/** Three tickets each: few enough to try everything that can ever happen to them. */
export const smallRooms: Readonly<Record<string, readonly Part[]>> = {
  'three mutexes': [part({}), part({ acceptMs: 1 }), part({ patienceMs: 6 })],
  'mutexes that messages reach': [
    part({ reached: true }),
    part({ reached: true, acceptMs: 1 }),
    part({ patienceMs: 6 }),
  ],
  'two readers that messages reach, and a writer': [
    part({ limit: UNLIMITED, reached: true }),
    part({ limit: UNLIMITED, reached: true, lockDelayMs: 1 }),
    part({ reached: true, minHoldMs: 1 }),
  ],
  'two readers and a writer': [part({ limit: UNLIMITED }), part({ limit: UNLIMITED, ttlMs: 2 }), part({})],
  'a semaphore of two, one of them wide': [
    part({ limit: 2 }),
    part({ limit: 2 }),
    part({ units: 2, limit: 2 }),
  ],
  'limits that differ': [part({ limit: 2 }), part({ limit: 3 }), part({ units: 2, limit: 5 })],
  'a limit that matters once another is gone': [
    part({ limit: 2 }),
    part({ limit: 3 }),
    part({ units: 3, limit: 5 }),
  ],
  'a minimum hold': [part({ minHoldMs: 3 }), part({ minHoldMs: 5, ttlMs: 2 }), part({ patienceMs: 0 })],
  'a lock-delay': [part({ lockDelayMs: 3 }), part({ lockDelayMs: 1, limit: 2 }), part({ limit: 2 })],
}

/**
 * Takes every sequence of actions, up to a depth or until no sequence leads to a new room. Checks each step against the
 * rules, and sends each call twice. Returns the number of different rooms.
 */
export function exploreRoom(
  law: Law,
  cast: readonly Part[],
  depth: number = Number.POSITIVE_INFINITY,
): number {
  const actions = actionsOf(cast)
  const seen = new Set<string>()
  let edge: (readonly Action[])[] = [[]]
  for (let reached = 0; reached < depth && edge.length > 0; reached += 1) {
    const next: (readonly Action[])[] = []
    for (const path of edge) {
      for (const action of actions) {
        const witness = new Witness(law, cast)
        for (const step of path) witness.repeat(step)
        try {
          witness.step(action)
          const room = witness.fingerprint()
          if (action.verb !== 'pass') witness.step(action)
          if (seen.has(room)) continue
          seen.add(room)
          next.push([...path, action])
        } catch (error) {
          throw new Error(`After ${JSON.stringify(path)}`, { cause: error })
        }
      }
    }
    edge = next
  }
  return seen.size
}

function actionsOf(cast: readonly Part[]): readonly Action[] {
  const ofOne = cast.flatMap((_, who): readonly Action[] => [
    { verb: 'acquire', who },
    { verb: 'renew', who },
    { verb: 'release', who, cancel: false },
    { verb: 'release', who, cancel: true },
    { verb: 'evict', who },
  ])
  const times = [1, 3, 60_000].map((ms): Action => ({ verb: 'pass', ms }))
  return [...ofOne, { verb: 'evict', who: undefined }, { verb: 'idle' }, ...times]
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
