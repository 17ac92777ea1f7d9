import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** @throws {InvalidArgumentError} when PostgreSQL would cut it, keep it for itself, or not take it. */
export function parseSchema(schema: unknown): string {
  // Two $ in a row of a name could end the body of a function that it is written into.
  const isName =
    typeof schema === 'string' && /^[A-Za-z_](?!.*\$.*\$)[A-Za-z0-9_$-]*$/.test(schema) && schema.length <= 63
  if (isName && !/^pg_/i.test(schema) && schema !== 'information_schema') return schema
  throw new InvalidArgumentError(
    `Expected \`schema\` to be a name of 1 to 63 letters, digits, _, - or one $, that begins with a letter or _ and not with pg_, got ${show(schema)}.`,
  )
}
