/** A row of an exported list: a value for each of its columns. */
export type ExportRow<Column extends string = string> = Readonly<Record<Column, ExportValue>>

export type ExportValue = string | number | boolean | null

/** A whole list: the names of its columns in their order, and its rows. */
export interface ExportedList {
  readonly columns: readonly string[]
  readonly rows: readonly ExportRow[]
}

export type ExportFormat = 'json' | 'csv'

export function isExportFormat(text: string | null): text is ExportFormat {
  return text === 'json' || text === 'csv'
}

/** The text of a file, and its media type. */
export function exported(
  { columns, rows }: ExportedList,
  format: ExportFormat,
): { readonly text: string; readonly type: string } {
  if (format === 'json') return { text: `${JSON.stringify(rows, undefined, 2)}\n`, type: 'application/json' }
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))]
  return { text: lines.map((line) => `${line.map(csvCell).join(',')}\r\n`).join(''), type: 'text/csv' }
}

/**
 * A cell of RFC 4180. A spreadsheet would run a text that begins like a formula, and names come from other people. Where a
 * spreadsheet separates cells by semicolons or tabs, a text with those would begin another cell.
 */
function csvCell(value: ExportValue | undefined): string {
  if (value === null || value === undefined) return ''
  if (typeof value !== 'string') return String(value)
  const text = /^[=+\-@\t\r＝＋－＠]/.test(value) ? `'${value}` : value
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
