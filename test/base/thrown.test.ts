import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { show } from '../../src/base/duration.ts'
import { fieldOf, messageOf, reportOf } from '../../src/base/thrown.ts'
import { isHoldfastError } from '../../src/errors.ts'
import { HOSTILE_VALUES } from './hostile-values.ts'

describe.each(HOSTILE_VALUES)('%s', (_name, make) => {
  test('has a message and a report of at most 4,000 characters', () => {
    for (const text of [messageOf(make()), reportOf(make())]) {
      expect(text).toBeTypeOf('string')
      expect(text.length).toBeGreaterThan(0)
      expect(text.length).toBeLessThanOrEqual(4000)
    }
  })

  test('can be shown, asked for its fields, and is no error of this library', () => {
    expect(show(make())).toBeTypeOf('string')
    expect(() => fieldOf(make(), 'cause')).not.toThrow()
    expect(isHoldfastError(make())).toBe(false)
  })
})

test('an error says its message, and its stack to a log', () => {
  const error = new RangeError('too far')
  expect(messageOf(error)).toBe('too far')
  expect(reportOf(error)).toBe(error.stack)
})

test('an error without a message says its class', () => {
  expect(messageOf(new AggregateError([]))).toBe('AggregateError')
})

test('an error of another realm says its message', () => {
  expect(messageOf(runInNewContext('new Error("from elsewhere")'))).toBe('from elsewhere')
})

test('a text says itself, an object what its toString says, and any other value of what kind it is', () => {
  expect(messageOf('no')).toBe('no')
  expect(messageOf({ toString: () => 'in my words' })).toBe('in my words')
  expect(messageOf({ code: 1 })).toBe('an object (Object)')
  expect(messageOf(Object.create(null))).toBe('an object (no class)')
  expect(messageOf(Symbol('x'))).toBe('Symbol(x)')
  expect(messageOf(() => {})).toBe('a function')
})
