import { expect, test } from 'vitest'
import { table } from '../../src/cli/table.ts'

const COLUMNS = [{ title: 'KEY', narrow: 'cut' as const }, { title: 'ID' }]

test('a cell of two million columns is cut to what there is room for', () => {
  const lines = table(COLUMNS, [['x'.repeat(2_000_000), '1']], 60)
  expect(lines.map((line) => line.length)).toEqual([60, 59])
})

test('a hundred thousand rows have one width', () => {
  const rows = Array.from({ length: 100_000 }, (_, index) => [`key:${index}`, '1'])
  expect(
    new Set(
      table(COLUMNS, rows, 60)
        .slice(1)
        .map((line) => line.length),
    ),
  ).toEqual(new Set([12]))
})
