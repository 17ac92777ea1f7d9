import { describe, expect, test } from 'vitest'
import { type History, playHistory, seedOf } from './history.ts'
import { mutants } from './mutants.ts'
import { withMutant } from './mutation.ts'

/** The checkers notice most mistakes in one of the first ten histories. */
const MOST_HISTORIES = 600

describe('the checkers notice that', () => {
  test.for(mutants)('$name', async (mutant) => {
    const noticed = await withMutant(mutant, async (implementation) => {
      for (let number = 1; number <= MOST_HISTORIES; number += 1) {
        const { violation } = await playHistory(seedOf(mutant.family, number), implementation)
        if (isExpected(violation)) return violation?.message
      }
      return undefined
    })
    expect(noticed).toBeDefined()

    function isExpected(violation: History['violation']): boolean {
      return violation !== undefined && mutant.rules.includes(violation.rule)
    }
  })
})

test('a copy of the sources without a mistake keeps every promise', async () => {
  const unchanged = { name: 'nothing', edits: [], family: 'everything at once', rules: [] } as const
  await withMutant(unchanged, async (implementation) => {
    const seed = seedOf(unchanged.family, 1)
    const [copy, original] = [await playHistory(seed, implementation), await playHistory(seed)]
    expect(copy.violation).toBeUndefined()
    expect(copy.world.trace.text()).toBe(original.world.trace.text())
  })
})

test('a mistake is only built in if its text is found exactly once', async () => {
  const edit = { file: 'law/law.ts', find: 'units', replace: 'limit' }
  const ambiguous = { name: 'ambiguous', edits: [edit], family: 'contention alone', rules: [] } as const
  await expect(withMutant(ambiguous, async () => {})).rejects.toThrow('Expected law/law.ts to hold this once')
})
