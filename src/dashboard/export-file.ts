/** A row of an exported list: named values, in the order of the columns. */
export type ExportRow = Readonly<Record<string, string | number | boolean | null>>

export type ExportFormat = 'json' | 'csv'

export function isExportFormat(text: string | null): text is ExportFormat {
  return text === 'json' || text === 'csv'
}

/** The text of a file, and its media type. */
export function exported(rows: readonly ExportRow[], format: ExportFormat): { text: string; type: string } {
  if (format === 'json') return { text: `${JSON.stringify(rows, undefined, 2)}\n`, type: 'application/json' }
  const [first = {}] = rows
  const lines = [Object.keys(first), ...rows.map((row) => Object.values(row))]
  return { text: lines.map((line) => `${line.map(csvCell).join(',')}\r\n`).join(''), type: 'text/csv' }
}

/** A cell of RFC 4180. A spreadsheet would run a text that begins like a formula, and names come from other people. */
function csvCell(value: ExportRow[string] | undefined): string {
  if (value === null || value === undefined) return ''
  if (typeof value !== 'string') return String(value)
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
