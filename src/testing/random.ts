/**
 * Repeatable random numbers: the same seed gives the same numbers on every machine. Use it for test histories and
 * simulations, never for ids or secrets.
 */
export interface Random {
  /** A number that is at least 0 and below 1. */
  next(): number
  /** An integer, both ends included. */
  between(lowest: number, highest: number): number
  /** One of the items. All are equally likely. */
  pick<T>(choices: readonly T[]): T
  /** True with this probability. */
  chance(probability: number): boolean
}

/**
 * Makes a generator from a seed. The algorithm is sfc32 (Chris Doty-Humphrey, PractRand): 128 bits of state, fast, and
 * short.
 *
 * ```ts
 * import { seededRandom } from 'holdfast/testing'
 *
 * const random = seededRandom('17')
 * random.between(1, 6)
 * ```
 */
export function seededRandom(seed: string | number): Random {
  let [a, b, c, counter] = [0, hash(`${seed}`), 0x9e3779b9, 1]
  const next = (): number => {
    const sum = (a + b + counter) | 0
    counter = (counter + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return (sum >>> 0) / 2 ** 32
  }
  // Similar seeds give similar first numbers. After a few rounds the numbers have nothing in common.
  for (let round = 0; round < 12; round += 1) next()
  return {
    next,
    between: (lowest, highest) => lowest + Math.floor(next() * (highest - lowest + 1)),
    pick: (choices) => {
      if (choices.length === 0)
        throw new RangeError('Expected `choices` to hold at least one value, got none')
      // The index is below the length, so what is there is of this type, even if it is undefined.
      return choices[Math.floor(next() * choices.length)] as (typeof choices)[number]
    },
    chance: (probability) => next() < probability,
  }
}

/** FNV-1a over code units. */
function hash(text: string): number {
  let state = 0x811c9dc5
  for (let index = 0; index < text.length; index += 1)
    state = Math.imul(state ^ text.charCodeAt(index), 0x01000193)
  return state | 0
}
