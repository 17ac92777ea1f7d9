import { cut, width } from '../text.ts'
import { cellsOf, type Row, type RowOrder } from './rows.ts'
import { SORTS, type Sort } from './sorts.ts'

interface ColumnRule {
  readonly title: string
  /** `undefined`: as wide as its content, while there is room. */
  readonly width?: number
  /** Columns with a larger number are dropped first on a narrow screen. */
  readonly lessImportant: number
}

const COLUMNS: Readonly<Record<Sort, ColumnRule>> = {
  key: { title: 'KEY', lessImportant: 0 },
  state: { title: 'S', width: 1, lessImportant: 2.5 },
  mode: { title: 'MODE', width: 8, lessImportant: 7 },
  holder: { title: 'HOLDER', lessImportant: 3 },
  held: { title: 'HELD', width: 7, lessImportant: 4 },
  left: { title: 'LEFT', width: 7, lessImportant: 2 },
  ttl: { title: 'TTL', width: 7, lessImportant: 5.5 },
  fence: { title: 'FENCE', width: 16, lessImportant: 8 },
  waiting: { title: 'WAITING', width: 7, lessImportant: 1 },
  longest: { title: 'LONGEST', width: 7, lessImportant: 6 },
}

const AT_RIGHT: ReadonlySet<Sort> = new Set(['held', 'left', 'ttl', 'fence', 'waiting', 'longest'])
const LEAST: Readonly<Partial<Record<Sort, number>>> = { key: 20, holder: 18 }
const GAP = 2

/**
 * Decides which columns are shown, and how wide. Columns whose content varies never get narrower again, so that the table
 * does not jump from one look to the next.
 */
export class TableColumns {
  #shown: readonly (readonly [Sort, number])[] = []
  readonly #widest: Partial<Record<Sort, number>> = { key: 8, holder: 8 }

  /** The line of titles, with a mark at the column that the rows are sorted by, then the rows. */
  lines(
    rows: readonly Row[],
    { room, order }: { readonly room: number; readonly order: RowOrder },
  ): readonly string[] {
    const cells = rows.map(cellsOf)
    for (const name of ['key', 'holder'] as const) {
      const widest = cells.reduce((most, cell) => Math.max(most, width(cell[name])), 0)
      this.#widest[name] = Math.max(this.#widest[name] ?? 0, Math.min(widest, MOST))
    }
    const fitted = this.#fitted(room)
    this.#shown = fitted
    const titles = Object.fromEntries(SORTS.map((name) => [name, titleOf(name, order)])) as Record<
      Sort,
      string
    >
    return [titles, ...cells].map((line) => lineOf(line, fitted))
  }

  /** The column that was drawn there, with the gap behind it; undefined beside the table. */
  at(place: number): Sort | undefined {
    let from = 0
    for (const [name, columns] of this.#shown) {
      if (place >= from && place < from + columns + GAP) return name
      from += columns + GAP
    }
    return undefined
  }

  #fitted(room: number): readonly (readonly [Sort, number])[] {
    const shown = new Set(SORTS)
    const least = (name: Sort): number =>
      COLUMNS[name].width ?? Math.min(this.#widest[name] ?? 0, LEAST[name] ?? 0)
    const needed = (widthOf: (name: Sort) => number): number =>
      [...shown].reduce((sum, name) => sum + widthOf(name) + GAP, -GAP)
    const byImportance = SORTS.toSorted(
      (one, other) => COLUMNS[other].lessImportant - COLUMNS[one].lessImportant,
    )
    for (const name of byImportance) if (name !== 'key' && needed(least) > room) shown.delete(name)
    const spare = Math.max(0, room - needed(least))
    const wanted = (name: Sort): number => (this.#widest[name] ?? 0) - least(name)
    const forHolder = shown.has('holder')
      ? Math.max(0, Math.min(wanted('holder'), spare - Math.min(wanted('key'), spare / 2)))
      : 0
    const extra: Partial<Record<Sort, number>> = {
      holder: Math.floor(forHolder),
      key: Math.min(wanted('key'), spare - Math.floor(forHolder)),
    }
    return [...shown].map((name) => [name, Math.min(least(name) + (extra[name] ?? 0), room)] as const)
  }
}

/** Wider columns rarely help to tell names apart. */
const MOST = 80

function titleOf(name: Sort, { sort, isReversed }: RowOrder): string {
  const { title } = COLUMNS[name]
  if (name !== sort) return title
  // The mark takes the place of a letter where the title fills its column.
  const mark = isReversed ? '▴' : '▾'
  return title.length === COLUMNS[name].width ? `${title.slice(0, -1)}${mark}` : title + mark
}

function lineOf(cells: Readonly<Record<Sort, string>>, fitted: readonly (readonly [Sort, number])[]): string {
  return fitted
    .map(([name, columns]) => {
      const cell = cut(cells[name], columns)
      const gap = ' '.repeat(Math.max(0, columns - width(cell)))
      return AT_RIGHT.has(name) ? gap + cell : cell + gap
    })
    .join(' '.repeat(GAP))
}
