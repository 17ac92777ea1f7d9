import { describe, expect, test } from 'vitest'
import { entriesOf, type RegisterEntry } from '../../src/cli/demo/register.ts'
import { broken, judge } from '../../src/cli/demo/verdict.ts'

/** The record of two holders, one after the other: three accepted writes, and one late write of the first holder. */
const sound: readonly RegisterEntry[] = [
  entry('a', 1, { what: 'enter', heldAtUs: 100 }),
  entry('a', 1, { base: 0, heldAtUs: 110 }),
  entry('a', 1, { base: 1, heldAtUs: 120 }),
  entry('b', 2, { what: 'enter', heldAtUs: 130, base: 2 }),
  entry('a', 1, { base: 2, heldAtUs: null }),
  entry('b', 2, { base: 2, heldAtUs: 140 }),
  entry('b', 2, { what: 'leave', heldAtUs: 150, base: 3 }),
]

describe('the verdict', () => {
  test('on a sound record counts what was refused and finds nothing broken', () => {
    const verdict = judge(sound)
    expect(verdict).toEqual({
      holds: 2,
      writes: 3,
      refused: 1,
      doubleHolders: 0,
      lostUpdates: 0,
      fencesOutOfOrder: 0,
    })
    expect(broken(verdict)).toBe(false)
  })

  test('finds two processes that held at the same instant, whatever their writes did', () => {
    const verdict = judge([...sound, entry('a', 1, { base: 2, heldAtUs: 135 })])
    expect(verdict).toMatchObject({ doubleHolders: 1, lostUpdates: 0 })
    expect(broken(verdict)).toBe(true)
  })

  test('finds a process that held within the long hold of another one', () => {
    const verdict = judge([
      entry('a', 1, { what: 'enter', heldAtUs: 0 }),
      entry('b', 2, { what: 'enter', heldAtUs: 10 }),
      entry('c', 3, { what: 'enter', heldAtUs: 20 }),
      entry('a', 1, { what: 'leave', heldAtUs: 30 }),
    ])
    expect(verdict.doubleHolders).toBe(2)
  })

  test('finds a write that overwrote a write it had not seen', () => {
    const verdict = judge([
      entry('a', 1, { what: 'enter', heldAtUs: 1 }),
      entry('b', 1, { what: 'enter', heldAtUs: null }),
      entry('a', 1, { base: 0, heldAtUs: 2 }),
      entry('b', 1, { base: 0, heldAtUs: null }),
    ])
    expect(verdict).toMatchObject({ writes: 2, lostUpdates: 1, doubleHolders: 0 })
    expect(broken(verdict)).toBe(true)
  })

  test.each([
    ['falls', 5, 4],
    ['stays', 5, 5],
  ])('finds a fence that %s from one holder to the next', (_, first, second) => {
    const verdict = judge([
      entry('a', first, { what: 'enter', heldAtUs: 1 }),
      entry('b', second, { what: 'enter', heldAtUs: 2 }),
    ])
    expect(verdict.fencesOutOfOrder).toBe(1)
    expect(broken(verdict)).toBe(true)
  })

  test('accepts a process that was stopped between reading the clock and writing', () => {
    const late = entry('a', 1, { base: 2, heldAtUs: 125 })
    expect(broken(judge([...sound, late]))).toBe(false)
  })

  test('ignores a line whose writer was killed in the middle of it', () => {
    const whole = JSON.stringify(sound[0])
    expect(entriesOf(['', whole.slice(0, 20), whole, ''])).toEqual([sound[0]])
  })
})

function entry(ticket: string, fence: number, fields: Partial<RegisterEntry>): RegisterEntry {
  const base = fields.base ?? 0
  return {
    worker: 1,
    ticket,
    nth: 1,
    fence: String(fence),
    what: 'write',
    heldAtUs: 0,
    ...fields,
    base,
    value: base + 1,
  }
}
