import { expect, test } from 'vitest'
import { seededRandom } from '../../src/testing/index.ts'

const draw = (seed: string | number, count = 20) => {
  const random = seededRandom(seed)
  return Array.from({ length: count }, () => random.next())
}

test('the same seed gives the same numbers, another seed gives others', () => {
  expect(draw('seed')).toEqual(draw('seed'))
  expect(draw(7)).toEqual(draw('7'))
  const firsts = Array.from({ length: 1_000 }, (_, seed) => draw(seed, 1)[0])
  expect(new Set(firsts).size).toBe(1_000)
})

test('every machine gives these numbers, so a seed in a bug report can be played again', () => {
  const random = seededRandom('holdfast')
  expect(Array.from({ length: 8 }, () => random.between(0, 999))).toMatchInlineSnapshot(`
    [
      978,
      645,
      766,
      928,
      250,
      857,
      330,
      168,
    ]
  `)
})

test('numbers are spread evenly, also over seeds that follow one another', () => {
  const spreads = [draw('one', 20_000), Array.from({ length: 20_000 }, (_, seed) => draw(seed, 1)[0] ?? 0)]
  for (const numbers of spreads) {
    const tenths = Array.from({ length: 10 }, () => 0)
    for (const number of numbers) tenths[Math.floor(number * 10)] = (tenths[Math.floor(number * 10)] ?? 0) + 1
    expect(Math.min(...tenths)).toBeGreaterThan(1_800)
    expect(Math.max(...tenths)).toBeLessThan(2_200)
  }
})

test('between includes both ends, pick takes every choice, chance keeps its probability', () => {
  const random = seededRandom('dice')
  const dice = Array.from({ length: 1_000 }, () => random.between(1, 6))
  expect([...new Set(dice)].sort()).toEqual([1, 2, 3, 4, 5, 6])
  const picks = Array.from({ length: 200 }, () => random.pick(['a', undefined]))
  expect(new Set(picks).size).toBe(2)
  const heads = Array.from({ length: 10_000 }, () => random.chance(0.3)).filter(Boolean).length
  expect(heads).toBeGreaterThan(2_700)
  expect(heads).toBeLessThan(3_300)
})

test('to pick from nothing is a mistake', () => {
  expect(() => seededRandom('none').pick([])).toThrow(
    'Expected `choices` to hold at least one value, got none',
  )
})
