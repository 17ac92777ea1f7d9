import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { lawComparison, storeConformance } from '../../src/testing/index.ts'
import { action, cast, present } from './histories.ts'
import { mutants } from './mutants.ts'
import { type Detector, type Mutated, mutate } from './mutation.ts'
import { exploreRoom, smallRooms } from './small-rooms.ts'
import { Witness } from './witness.ts'

/** The layers that have to notice a mistake. Each function resolves if it has noticed none. */
const detectors: Readonly<Record<Detector, (mutated: Mutated) => Promise<void>>> = {
  async rules({ law }) {
    const histories = fc.property(
      cast,
      fc.array(action, { maxLength: 60, size: 'max' }),
      (parts, actions) => {
        const witness = new Witness(law, parts)
        for (const step of actions) witness.step(present(step, parts))
      },
    )
    fc.assert(histories, { numRuns: 1_000, seed: 1, endOnFailure: true })
    // Last, because it takes longest, and most mistakes show before.
    for (const room of Object.values(smallRooms)) exploreRoom(law, room, 4)
  },

  async comparison(mutated) {
    const { store, setTime } = storeOf(mutated)
    await lawComparison({ store, setTime, setsBack: true, grants: true, seed: 'mutants', histories: 2_000 })
  },

  async conformance(mutated) {
    const { store, pass } = storeOf(mutated)
    for (const { run } of storeConformance({ open: () => store, sharesClock: true, grants: true, pass }))
      await run()
  },
}

const names = Object.keys(detectors) as Detector[]

// The mutants run one after the other. A mutant takes seconds without a pause, and would hold up the clocks that the
// conformance suite of another mutant reads.
describe('each of three layers of tests', () => {
  test('finds nothing wrong with the law and the store as they are', async () => {
    expect(await detectorsThatNotice(await mutate(undefined), names)).toEqual([])
  })

  test.for(mutants)('notices that $name', async (mutant) => {
    // A detector that misses the mistake would look at everything, which takes longest.
    const expected = names.filter((name) => !mutant.missedBy.includes(name))
    expect(expected).not.toEqual([])
    expect(await detectorsThatNotice(await mutate(mutant), expected)).toEqual(expected)
  })
})

async function detectorsThatNotice(
  mutated: Mutated,
  asked: readonly Detector[],
): Promise<readonly Detector[]> {
  const noticed: Detector[] = []
  for (const name of asked) await detectors[name](mutated).catch(() => noticed.push(name))
  return noticed
}

function storeOf({ memoryStore }: Mutated) {
  let ms = Date.now()
  return {
    store: memoryStore({ now: () => ({ ms, us: ms * 1000 }) }),
    setTime: (to: number) => {
      ms = to
    },
    pass: (by: number) => {
      ms += by
    },
  }
}
