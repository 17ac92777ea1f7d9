import { cut, width } from './text.ts'

export interface Column {
  readonly title: string
  readonly align?: 'right'
  /** How the column gives way where the table is too wide. Default: not at all. */
  readonly narrow?: 'drop' | 'cut'
}

/** Rows under their titles, two spaces apart, at most `room` characters wide where the columns allow it. */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  room: number = Number.POSITIVE_INFINITY,
): readonly string[] {
  const lines = [columns.map(({ title }) => title), ...rows]
  const fitted = narrowed(
    columns.map((column, index) => ({
      column,
      index,
      // A cell wider than the whole table would take a step for each character to narrow.
      width: Math.min(
        lines.reduce((most, line) => Math.max(most, width(line[index] ?? '')), 0),
        column.narrow === 'cut' ? Math.max(room, LEAST_WIDTH) : Number.POSITIVE_INFINITY,
      ),
    })),
    room,
  )
  return lines.map((line) =>
    fitted
      .map(({ column, index, width: wanted }) => {
        const cell = cut(line[index] ?? '', wanted)
        const gap = ' '.repeat(wanted - width(cell))
        return column.align === 'right' ? gap + cell : cell + gap
      })
      .join('  ')
      .trimEnd(),
  )
}

interface Fitted {
  readonly column: Column
  readonly index: number
  width: number
}

function narrowed(columns: readonly Fitted[], room: number): readonly Fitted[] {
  const isTooWide = (some: readonly Fitted[]): boolean =>
    some.reduce((sum, each) => sum + each.width + 2, -2) > room
  let fitted = columns
  if (isTooWide(fitted)) fitted = fitted.filter(({ column }) => column.narrow !== 'drop')
  while (isTooWide(fitted)) {
    const [widest] = fitted
      .filter((each) => each.column.narrow === 'cut' && each.width > LEAST_WIDTH)
      .sort((one, other) => other.width - one.width)
    if (widest === undefined) break
    widest.width -= 1
  }
  return fitted
}

const LEAST_WIDTH = 12
