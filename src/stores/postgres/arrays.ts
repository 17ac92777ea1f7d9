/** One array for each name, in PostgreSQL's notation. */
export function arraysOf<Row>(rows: readonly Row[], names: readonly (keyof Row)[]): string[] {
  return names.map((name) => `{${rows.map((row) => quoted(row[name])).join(',')}}`)
}

function quoted(value: unknown): string {
  return typeof value === 'string' ? `"${value.replace(/["\\]/g, '\\$&')}"` : String(value)
}
