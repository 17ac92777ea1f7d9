import { expect, it } from 'vitest'
import { judge } from '../../soak/level.ts'
import { summaryOf } from '../../soak/report.ts'

const tolerance = { share: 0.05, amount: 1 }

it('a series that swings around one value is level', () => {
  const points = series((index) => 100 + (index % 7) - 3)
  expect(judge(points, tolerance)).toMatchObject({ isLevel: true })
})

it('a series that grows by more than its tolerance over the whole time is not level', () => {
  const points = series((index) => 100 + index * 0.2 + (index % 7))
  const { isLevel, growth } = judge(points, tolerance)
  expect(isLevel).toBe(false)
  // The last three quarters of 100 points, at 0.2 each.
  expect(growth).toBeCloseTo(15, 0)
})

it('a series that shrinks is level', () => {
  expect(
    judge(
      series((index) => 100 - index),
      tolerance,
    ).isLevel,
  ).toBe(true)
})

it('what a process takes while it warms up does not count', () => {
  const points = series((index) => (index < 20 ? index * 10 : 200))
  expect(judge(points, tolerance)).toEqual({ median: 200, growth: 0, isSeen: true, isLevel: true })
})

it('a few outliers do not make a level series grow', () => {
  const points = series((index) => (index > 90 && index % 2 === 0 ? 10_000 : 100))
  expect(judge(points, tolerance).isLevel).toBe(true)
})

it('one sample, or none, proves nothing', () => {
  expect(judge([[0, 5]], tolerance)).toEqual({ median: 5, growth: 0, isSeen: false, isLevel: false })
  expect(judge([], tolerance).isLevel).toBe(false)
})

it('a series of nothing but zeros was not measured', () => {
  expect(
    judge(
      series(() => 0),
      tolerance,
    ),
  ).toMatchObject({ isSeen: false, isLevel: false })
})

it('a soak of a server expects the series of that server, and one of a file does not', () => {
  const outcome = { store: 'some', samples: [], killed: 0, errors: {}, lost: 0 }
  const labels = (hasServer: boolean) => summaryOf({ ...outcome, hasServer }).series.map(({ label }) => label)
  expect(labels(true).filter((label) => !labels(false).includes(label))).toEqual([
    'memory of the server',
    'connections of the server',
  ])
  expect(summaryOf({ ...outcome, hasServer: true }).isLevel).toBe(false)
})

function series(value: (index: number) => number): readonly (readonly [number, number])[] {
  return Array.from({ length: 100 }, (_, index) => [index * 1000, value(index)] as const)
}
