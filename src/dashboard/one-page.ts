/** One page of a list, and how many there are. A page behind the last one is the last one. `all` is the whole list as one page. */
export function onePage<T, R>(
  matching: readonly T[],
  page: PageNumber,
  rowOf: (each: T) => R,
  pageRows: number = PAGE_ROWS,
): { matching: number; page: number; pages: number; rows: readonly R[] } {
  if (page === 'all') return { matching: matching.length, page: 0, pages: 1, rows: matching.map(rowOf) }
  const pages = Math.max(1, Math.ceil(matching.length / pageRows))
  const shown = Math.min(page, pages - 1)
  const rows = matching.slice(shown * pageRows, (shown + 1) * pageRows).map(rowOf)
  return { matching: matching.length, page: shown, pages, rows }
}

export type PageNumber = number | 'all'

const PAGE_ROWS = 100
/** How much of a text a row shows. */
export const ROW_TEXT = 200
