import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LONGEST_KEY } from '../../src/base/arguments.ts'
import { width } from '../../src/cli/text.ts'
import { TableColumns } from '../../src/cli/top/columns.ts'
import { KeyReader } from '../../src/cli/top/keys.ts'
import { typingLine } from '../../src/cli/top/lines.ts'
import { filtered, rowsOf, sorted } from '../../src/cli/top/rows.ts'
import { frameOf } from '../../src/cli/top/screen.ts'
import { SORTS } from '../../src/cli/top/sorts.ts'
import { sumsOf } from '../../src/cli/top/sums.ts'
import { firstView, pressed, type TopView } from '../../src/cli/top/view.ts'
import { LONGEST_REASON } from '../../src/errors.ts'
import type { InspectedRoom } from '../../src/index.ts'
import { until } from '../servers/until.ts'

const KEYS = [
  ...['up', 'down', 'page-up', 'page-down', 'home', 'end', 'enter', 'escape', 'backspace', 'left', 'right'],
  ...[
    '/',
    'h',
    '?',
    'q',
    'p',
    'r',
    '<',
    '>',
    'K',
    'H',
    'W',
    'T',
    'x',
    '日',
    ' ',
    'ctrl-u',
    'ctrl-w',
    'ctrl-l',
  ],
]

const ticket = fc.record({
  id: fc.string({ minLength: 1, maxLength: 20 }),
  units: fc.constantFrom(1, 3),
  limit: fc.constantFrom(1, 5, Number.MAX_SAFE_INTEGER),
  owner: fc.oneof(
    fc.string({ unit: 'binary', maxLength: 60 }).map((text) => ({ text })),
    fc.string({ unit: 'binary', maxLength: 30 }).map((label) => ({ host: 'web', pid: 7, label })),
  ),
})
const durations = fc.double({ min: 0, max: 1e9, noNaN: true })
const room: fc.Arbitrary<InspectedRoom> = fc.record({
  key: fc.oneof(
    fc.string({ unit: 'binary', minLength: 1, maxLength: 80 }),
    fc.constantFrom('\x1b[2J', '🔒'.repeat(70)),
  ),
  holders: fc.array(
    fc
      .tuple(
        ticket,
        durations,
        durations,
        fc.bigInt({ min: 0n, max: 2n ** 63n }),
        fc.constantFrom('held', 'offered', 'leaving'),
      )
      .map(([of, heldMs, remainingMs, fence, state]) => ({ ...of, heldMs, remainingMs, fence, state })),
    { maxLength: 3 },
  ),
  queue: fc.array(
    fc.tuple(ticket, durations).map(([of, waitedMs]) => ({ ...of, waitedMs })),
    { maxLength: 4 },
  ),
  closedMs: fc.constantFrom(0, 1500),
})

/** As before the second look: nothing is known about renewals. */
const UNKNOWN = { renewalsOf: () => undefined }

test('whatever there is to show, and whatever was pressed, a page has as many lines as the screen, and none is wider', () => {
  const scenes = fc.record({
    rooms: fc.uniqueArray(room, { maxLength: 12, selector: ({ key }) => key }),
    size: fc.record({ columns: fc.integer({ min: 1, max: 220 }), rows: fc.integer({ min: 1, max: 60 }) }),
    keys: fc.array(fc.constantFrom(...KEYS), { maxLength: 12 }),
    isAway: fc.boolean(),
  })
  fc.assert(
    fc.property(scenes, ({ rooms, size, keys, isAway }) => {
      const columns = new TableColumns()
      const frame = (view: TopView) => {
        const rows = sorted(filtered(rowsOf(rooms, UNKNOWN), view.filter), view.order)
        const shown = frameOf({
          ...{
            store: 'redis cache:6379',
            prefix: '',
            everyMs: 1000,
            view,
            rows,
            size,
            columns,
            history: undefined,
            ...UNKNOWN,
          },
          snapshot: {
            at: 1,
            rooms,
            isCut: false,
            caveats: [],
            store: isAway
              ? { tag: 'away', sinceAt: 1, message: 'It is gone.' }
              : { tag: 'present', lookMs: 1 },
          },
          sums: sumsOf(rooms, []),
          paint: (_, text) => text,
        })
        return { rows, ...shown }
      }
      let view = firstView({ sort: 'waiting', isReversed: false })
      for (const key of ['', ...keys]) {
        const before = frame(view)
        view = {
          ...pressed(view, key, { ...before, titlesLine: before.above, columnAt: () => 'held' }),
          top: before.top,
        }
        const { lines } = frame(view)
        expect(lines).toHaveLength(size.rows)
        for (const line of lines) {
          expect(width(line)).toBeLessThanOrEqual(size.columns)
          expect(line).not.toMatch(/[\p{Cc}\p{Cs}]/u)
        }
      }
    }),
    { numRuns: 200 },
  )
})

test('every column sorts, and the other direction is the reverse', () => {
  const rows = rowsOf(fc.sample(room, { numRuns: 30, seed: 1 }), UNKNOWN)
  for (const sort of SORTS) {
    const there = sorted(rows, { sort, isReversed: false })
    const back = sorted(there.toReversed(), { sort, isReversed: true })
    expect(back.map(({ key }) => key)).toEqual(there.toReversed().map(({ key }) => key))
  }
})

test('sorting by holder reads each of them once', () => {
  let reads = 0
  const rooms = Array.from({ length: 1000 }, (_, n) => ({
    ...{ key: `k${n}`, queue: [], closedMs: 0 },
    holders: [
      {
        ...{ id: 'x', units: 1, limit: 1, fence: 1n, heldMs: 1, remainingMs: 1, state: 'held' as const },
        get owner() {
          reads += 1
          return { host: `h${(n * 7919) % 1000}`, pid: 1 }
        },
      },
    ],
  }))
  const rows = rowsOf(rooms, UNKNOWN)
  const holders = sorted(rows, { sort: 'holder', isReversed: false }).map(({ holder }) => holder)
  expect(holders).toEqual([...holders].sort())
  expect(reads).toBe(1000)
})

test.each([
  ['/', LONGEST_KEY],
  ['x', LONGEST_REASON],
] as const)('what is typed after %s ends at %i characters, and can be shortened', (key, longest) => {
  const holder = { id: 'x', units: 1, limit: 1, fence: 1n, heldMs: 1, remainingMs: 1, state: 'held' as const }
  const held = { key: 'k', holders: [{ ...holder, owner: { text: 'somebody' } }], queue: [], closedMs: 0 }
  const rows = rowsOf([held], UNKNOWN)
  const facts = { rows, pageSize: 1, titlesLine: 0, columnAt: () => undefined }
  const press = (view: TopView, ...keys: readonly string[]): TopView =>
    keys.reduce((seen, each) => pressed(seen, each, facts), view)
  const asked = press(firstView({ sort: 'key', isReversed: false }), 'down', key)
  const begun = '日'.repeat(longest - 2)
  const full = press(asked, ...begun, 'y', '🔒', 'z', '日')
  expect(full.typing?.text).toBe(`${begun}yz`)
  expect(press(full, 'backspace', 'backspace', 'q').typing?.text).toBe(`${begun}q`)
})

test('the end of a long answer is shown, behind as much of the question as fits', () => {
  expect(typingLine('Why? ', { typed: 'abc', room: 20 })).toBe('Why? abc_')
  expect(typingLine('Why? ', { typed: '日本語の請求書', room: 13 })).toBe('Why? 請求書_')
  expect(typingLine('Why? ', { typed: '日本語の請求書', room: 12 })).toBe('Why? 求書_')
  expect(typingLine('Why? ', { typed: 'abc', room: 1 })).toBe('_')
})

describe('what is typed', () => {
  test.each([
    ['a', ['a']],
    ['日🔒', ['日', '🔒']],
    ['\x1b[A\x1bOB\x1b[5~\x1b[1~', ['up', 'down', 'page-up', 'home']],
    ['\r\x7f\x03', ['enter', 'backspace', 'ctrl-c']],
    ['\x1b[1;5A\x1b[200~x', ['x']],
    ['\x1b[200~47\r\n11\t\x7f8\r\x1b[201~\r', ['4', '7', ' ', '1', '1', ' ', '8', 'enter']],
    ['\x1b[200~x\r\x03', ['x', 'ctrl-c']],
    ['\x01\x1bz', []],
    ['\x1b[[A\x1b[[B\x1b[[C\x1b[[D\x1b[[E\x1b[17~', ['f1', 'f3', 'f4', 'f6']],
    ['\x1b\x1b[D\x1b\x1bOC\x1b\x1b[[Cx', ['x']],
    ['\x1b\x1bx', ['escape', 'x']],
    ['\x1bO2R\x1bO1;5Hx', ['x']],
    ['\x1b[7$x\x1b[23$\x1b[4;1$yx', ['x', 'x']],
  ])('%j is %j', (typed, keys) => {
    const read: string[] = []
    new KeyReader((key) => read.push(key)).push(typed)
    expect(read).toEqual(keys)
  })

  test('a sequence that arrives in pieces is one key, and the beginning of one alone is Escape', async () => {
    const read: string[] = []
    const reader = new KeyReader((key) => read.push(key))
    for (const piece of ['\x1b', '[', '6', '~', '\x1b[', '[', 'D', '\x1b']) reader.push(piece)
    expect(read).toEqual(['page-down', 'f4'])
    await until('it was waited for in vain', () => read.length > 2)
    expect(read).toEqual(['page-down', 'f4', 'escape'])
  })

  test.each(['\x1b[', '\x1b[[', '\x1bO', '\x1bO2', '\x1b[1;', '\x1b\x1b[', '\x1b[23$'])(
    'of %j, which nothing follows, no letter is a key',
    async (piece) => {
      const read: string[] = []
      const reader = new KeyReader((key) => read.push(key))
      reader.push(piece)
      const other: string[] = []
      new KeyReader((key) => other.push(key)).push('\x1b')
      await until('the time is over', () => other.length > 0)
      reader.push('x')
      expect(read).toEqual(['x'])
    },
  )

  test('a paste that arrives in pieces ends where it ends', () => {
    const read: string[] = []
    const reader = new KeyReader((key) => read.push(key))
    for (const piece of ['\x1b[20', '0~1\r', '\x1b', '[201', '~\r']) reader.push(piece)
    expect(read).toEqual(['1', 'enter'])
  })
})

test('hand-overs are counted over the last seconds, and only from the second page on', () => {
  const look = (at: number, begun: number, expired = 0) => ({
    at,
    keys: 1,
    holding: 1,
    waiting: 0,
    begun,
    expired,
  })
  expect(sumsOf([], [])).toMatchObject({ handOvers: undefined, expired: 0 })
  expect(sumsOf([], [look(1000, 5)])).toMatchObject({ handOvers: undefined })
  expect(sumsOf([], [look(1000, 5), look(3000, 4, 1)])).toMatchObject({ handOvers: 2, expired: 1 })
  const old = Array.from({ length: 100 }, (_, second) => look(second * 1000, 3, second < 10 ? 1 : 0))
  expect(sumsOf([], old)).toMatchObject({ handOvers: 3, expired: 0 })
})
