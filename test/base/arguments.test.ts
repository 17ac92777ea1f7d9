import { describe, expect, test } from 'vitest'
import { checkObject, checkOptions, parseCount, parseFlag } from '../../src/base/arguments.ts'
import { InvalidArgumentError } from '../../src/index.ts'

describe('options', () => {
  test('are an object, and neither an array nor a Map nor nothing', () => {
    for (const options of [null, undefined, 'ttl', 5, [], new Map(), () => {}]) {
      expect(() => checkObject(options)).toThrow(InvalidArgumentError)
      expect(() => checkOptions(options, [])).toThrow(/^Expected the options to be an object, got .+\.$/)
    }
    expect(() => checkOptions(Object.create(null), [])).not.toThrow()
  })

  test.each([
    ['a list', ['ttl', 'wait']],
    ['a set', new Set(['ttl', 'wait'])],
  ])('are among the names of %s', (_, known) => {
    expect(() => checkOptions({ ttl: 1, wait: undefined }, known)).not.toThrow()
    expect(() => checkOptions({ ttl: 1, tll: 2 }, known)).toThrow(
      'Expected the options to be among `ttl`, `wait`, got `tll`.',
    )
  })
})

test('a count is a whole number of its range', () => {
  expect([0, 7, 100].map((count) => parseCount('replicas', count, { least: 0, most: 100 }))).toEqual([
    0, 7, 100,
  ])
  for (const count of [-1, 101, 0.5, Number.NaN, Number.POSITIVE_INFINITY, '7', 7n, null, undefined]) {
    expect(() => parseCount('replicas', count, { least: 0, most: 100 })).toThrow(
      /^Expected `replicas` to be a whole number from 0 to 100, got .+\.$/,
    )
  }
})

test('a count without an end may be Infinity, and nothing else that is not whole', () => {
  const range = { least: 1, most: Number.POSITIVE_INFINITY }
  expect(parseCount('attempts', Number.POSITIVE_INFINITY, range)).toBe(Number.POSITIVE_INFINITY)
  expect(parseCount('attempts', 3, range)).toBe(3)
  for (const count of [0, 1.5, 2 ** 53, Number.NaN]) {
    expect(() => parseCount('attempts', count, range)).toThrow(
      /^Expected `attempts` to be a whole number from 1 on, or Infinity, got .+\.$/,
    )
  }
})

test('a flag that is left out has its default, and null is no flag', () => {
  expect(parseFlag('renew', undefined, true)).toBe(true)
  expect(parseFlag('renew', false, true)).toBe(false)
  expect(() => parseFlag('renew', null, true)).toThrow('Expected `renew` to be true or false, got null.')
})
