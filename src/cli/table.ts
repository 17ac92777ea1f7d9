import { width } from './text.ts'

export interface Column {
  readonly title: string
  readonly align?: 'right'
}

/** Rows under their titles, two spaces apart. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[]): readonly string[] {
  const titles = columns.map(({ title }) => title)
  const widths = columns.map((_, index) =>
    Math.max(...[titles, ...rows].map((row) => width(row[index] ?? ''))),
  )
  return [titles, ...rows].map((row) =>
    columns
      .map(({ align }, index) => {
        const cell = row[index] ?? ''
        const gap = ' '.repeat((widths[index] ?? 0) - width(cell))
        return align === 'right' ? gap + cell : cell + gap
      })
      .join('  ')
      .trimEnd(),
  )
}
