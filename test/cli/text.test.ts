import { describe, expect, test } from 'vitest'
import { table } from '../../src/cli/table.ts'
import { age, cut, exactly, givenJson, json, plain, width, wrap } from '../../src/cli/text.ts'

describe('a stranger’s text', () => {
  test.each([
    ['clears the screen', '\x1b[2J', '\\x1b[2J'],
    ['ends the line', 'a\r\nb', 'a\\x0d\\x0ab'],
    ['uses an 8-bit control sequence', '\x9b2J', '\\x9b2J'],
    ['deletes', 'a\x7f', 'a\\x7f'],
    ['turns the direction of writing', 'a\u202eb', 'a\\u{202e}b'],
    ['hides in no width', 'a\u200bb\ufeff', 'a\\u{200b}b\\u{feff}'],
    ['is blank', 'a\u2800b\u3164c\u034fd\ufe0f', 'a\\u{2800}b\\u{3164}c\\u{34f}d\\u{fe0f}'],
    ['is a blank of another width', 'a\u00a0b\u2003c\u3000d\u1680', 'a\\xa0b\\u{2003}c\\u{3000}d\\u{1680}'],
    ['varies no ideograph', 'a\u{e0100}1\ufe0f', 'a\\u{e0100}1\\u{fe0f}'],
    ['ends the line in Unicode', 'a\u2028b', 'a\\u{2028}b'],
    ['is half a character', 'a\ud800', 'a\\u{d800}'],
  ])('that %s is escaped, also in JSON', (_, hostile, shown) => {
    expect(plain(hostile)).toBe(shown)
    const line = json({ key: hostile })
    expect(line).toMatch(/^[\x20-\x7e]+$/)
    expect(JSON.parse(line)).toEqual({ key: hostile })
  })

  test('that is only foreign stays as it is', () => {
    const foreign = 'Über 日本 🔒 ❤\ufe0f 1\ufe0f\u20e3 葛\u{e0100}'
    expect(plain(foreign)).toBe(foreign)
  })

  test('what a user gave to a job stays as it is, and times of our own are rounded', () => {
    const given = { rate: 2.34567, all: [1e306, { waitedMs: 0.0001 }] }
    const record = { waitedMs: 1.23456, payload: given, progress: 0.33333, result: null }
    expect(JSON.parse(json([record]))).toEqual([{ ...record, waitedMs: 1.235 }])
    expect(JSON.parse(givenJson(given))).toEqual(given)
  })

  test('a duration that somebody has set is shown to the millisecond', () => {
    const durations = [91_800_000, 3_630_000, 1500, 0, 60_000, 90_061_001]
    expect(durations.map(exactly)).toEqual([
      '1d 1h 30m',
      '1h 30s',
      '1s 500ms',
      '0ms',
      '1m',
      '1d 1h 1m 1s 1ms',
    ])
  })

  test('fences are strings in JSON', () => {
    expect(json({ fence: 2n ** 60n })).toBe('{"fence":"1152921504606846976"}')
  })

  test('times have no digits beyond the microsecond in JSON', () => {
    expect(json({ heldMs: 840.323486328125, units: 2 })).toBe('{"heldMs":840.323,"units":2}')
  })
})

test.each([
  [0, '0ms'],
  [999.4, '999ms'],
  [999.6, '1.0s'],
  [1000, '1.0s'],
  [59_999, '59.9s'],
  [60_000, '1m 00s'],
  [3_599_999, '59m 59s'],
  [3_600_000, '1h 00m'],
  [90_000_000, '1d 1h'],
])('%d ms is shown as %s', (durationMs, shown) => {
  expect(age(durationMs)).toBe(shown)
})

test('lines are broken at spaces, where there are any', () => {
  expect(wrap('one two three', 7)).toEqual(['one two', 'three'])
  expect(wrap('extraordinarily long', 7)).toEqual(['extraordinarily', 'long'])
})

describe('a text that is cut', () => {
  test('keeps its beginning and its end, whatever is wide in it', () => {
    expect(cut('account:invoice:42', 9)).toBe('acco…e:42')
    expect(cut('日本日本日本', 6)).toBe('日…本')
    expect(cut('日本日本日本', 7)).toBe('日本…本')
    expect(['abc', 'ab', 'a'].map((text) => cut(text, 2))).toEqual(['a…', 'ab', 'a'])
    expect([cut('abc', 1), cut('abc', 0)]).toEqual(['…', ''])
  })

  test('takes no time worth mentioning, even with a megabyte of text', () => {
    expect(cut(`a${'x'.repeat(1_000_000)}b`, 5)).toBe('ax…xb')
  })

  test('counts rare characters as terminals do: those of the second plane, and those that surround others', () => {
    expect(['\u{20000}', '\u{2f800}', 'a\u20dd', '\u{1f512}'].map(width)).toEqual([2, 2, 1, 2])
  })
})

describe('a table', () => {
  test('stands in columns, also where characters are wide or combine', () => {
    const lines = table(
      [{ title: 'KEY' }, { title: 'N', align: 'right' }, { title: '' }],
      [
        ['日本', '1', 'x'],
        ['u\u0308', '10', ''],
      ],
    )
    expect(lines).toEqual(['KEY    N', '日本   1  x', 'u\u0308     10'])
    expect(width('日本')).toBe(4)
  })

  test('that is wider than the screen leaves out what may be dropped, then the middle of what may be cut', () => {
    const columns = [
      { title: 'KEY', narrow: 'cut' as const },
      { title: 'FENCE', narrow: 'drop' as const },
      { title: 'LEFT' },
    ]
    const rows = [
      ['a-key-with-a-long-name:1', '1234567', '20.0s'],
      ['日本日本日本日本日本日本', '1', '1.0s'],
    ]
    const widest = (room?: number) => Math.max(...table(columns, rows, room).map(width))
    expect([widest(), widest(40), widest(39)]).toEqual([40, 40, 31])
    expect(table(columns, rows, 24)).toEqual([
      'KEY                LEFT',
      'a-key-wi…g-name:1  20.0s',
      '日本日本…日本日本  1.0s',
    ])
    // The table is never narrower than this, because a part of the key always stays.
    expect(widest(1)).toBe(19)
  })

  test('is its titles when there are no rows', () => {
    expect(table([{ title: 'KEY' }], [])).toEqual(['KEY'])
  })
})
