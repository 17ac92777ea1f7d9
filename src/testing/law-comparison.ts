import assert from 'node:assert/strict'
import { checkObject, expected, parseCount, parseFunction } from '../base/arguments.ts'
import type { Store } from '../contract/store.ts'
import { describeRole, describeStep, drawHistory, type History, rolesOf } from './law-history.ts'
import { type Difference, Stage } from './law-stage.ts'
import { seededRandom } from './random.ts'

/** Which store to compare with the law, and how long. */
export interface LawComparisonOptions {
  /** The store under test. */
  readonly store: Store
  /**
   * Sets the store's clock, in milliseconds since 1970. The time never falls, unless `setsBack` is true. With `setTime`,
   * histories have short terms and expiry, and every time in an answer must be exact. Without it the store's own clock
   * runs, no ticket expires, and times need only be near.
   */
  readonly setTime?: (ms: number) => void | Promise<void>
  /** Whether `setTime` may also set the clock back, as an administrator may do with a server's. Default: false. */
  readonly setsBack?: boolean
  /**
   * Whether the store's messages may be leases (`Granted`), as those of memory, SQLite, Redis and PostgreSQL. Default: false, all messages
   * are hints. If it is wrong, the comparison fails as soon as a waiter is admitted.
   */
  readonly grants?: boolean
  /** The seed of an earlier run, to repeat it. Default: a new seed each time, which a failure names. */
  readonly seed?: string
  /** How many histories to play. Default: 50. */
  readonly histories?: number
  /** How many steps each of them has. Default: 40. */
  readonly steps?: number
}

/** What a comparison without a difference has covered. */
export interface LawComparisonReport {
  /** The seed of this run, to repeat it. */
  readonly seed: string
  /** How often the law gave each answer, such as `acquire held`. It shows what the histories have covered. */
  readonly answers: Readonly<Record<string, number>>
}

/**
 * Plays random histories to a store and to the law side by side. It compares every answer, every room as `inspect` shows it,
 * and every wake if the store has `listen`. Each store has its own fences, so these are compared by order and equality.
 *
 * At the first difference it rejects with an `AssertionError`. The message has the seed, and the shortest history that it
 * found with this difference.
 *
 * ```ts
 * import { test } from 'node:test'
 * import { lawComparison } from 'holdfast/testing'
 * import { myStore } from './my-store.js'
 *
 * test('my store follows the law step by step', async () => {
 *   await lawComparison({ store: myStore('localhost:4711') })
 * })
 * ```
 *
 * @throws {InvalidArgumentError} when `store` is not a store, `setTime` is not a function, or `histories` or `steps` is not a
 * whole number from 1 to 1,000,000.
 */
export async function lawComparison(options: LawComparisonOptions): Promise<LawComparisonReport> {
  checkObject(options, 'store')
  if (typeof options.store?.acquire !== 'function') throw expected('store', 'a store', options.store)
  const { histories = 50, steps = 40, seed = crypto.randomUUID(), setTime } = options
  parseCount('histories', histories, COUNTS)
  parseCount('steps', steps, COUNTS)
  const time = setTime !== undefined
  if (time) parseFunction('setTime', setTime)
  const setsBack = time && options.setsBack === true
  const stage = new Stage(options)
  await stage.open()
  try {
    for (let number = 0; number < histories; number += 1) {
      const history = drawHistory(seededRandom(`${seed}/${number}`), { steps, time, setsBack })
      const difference = await stage.play(history)
      if (difference === undefined) continue
      const shortest = await shorten(stage, history, difference)
      throw new assert.AssertionError({ message: explain(shortest, seed) })
    }
  } finally {
    stage.close()
  }
  return { seed, answers: Object.fromEntries(stage.answers) }
}

/** Without a history or a step nothing would be compared. */
const COUNTS = { least: 1, most: 1_000_000 }

interface Counterexample {
  readonly history: History
  readonly difference: Difference
}

/** Leaves out step after step while a difference remains. Stops after some seconds. */
async function shorten(stage: Stage, original: History, difference: Difference): Promise<Counterexample> {
  const giveUpAt = performance.now() + 10_000
  let found: Counterexample = { history: cut(original, difference), difference }
  for (let index = difference.steps - 1; index >= 0 && performance.now() < giveUpAt; index -= 1) {
    const { cast, steps } = found.history
    const shorter: History = { cast, steps: steps.filter((_, at) => at !== index) }
    const again = await stage.play(shorter)
    if (again !== undefined) found = { history: cut(shorter, again), difference: again }
    index = Math.min(index, found.history.steps.length)
  }
  return found
}

function cut({ cast, steps }: History, { steps: count }: Difference): History {
  return { cast, steps: steps.slice(0, count) }
}

function explain({ history: { cast, steps }, difference }: Counterexample, seed: string): string {
  const used = new Set<number>(steps.flatMap(rolesOf))
  return [
    `The store differs from the law (seed ${seed}):`,
    ...cast.flatMap((role, index) => (used.has(index) ? [`  ${describeRole(role, index)}`] : [])),
    ...steps.map((step, index) => `  ${index + 1}. ${describeStep(step)}`),
    `  ${difference.text}`,
  ].join('\n')
}
