import { expected } from '../base/arguments.ts'

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** @throws {InvalidArgumentError} if PostgreSQL would cut the name, reserves it, or refuses it. */
export function parseSchema(schema: unknown): string {
  // A name with two $ could end the body of a function that it is written into.
  const isName =
    typeof schema === 'string' && /^[A-Za-z_](?!.*\$.*\$)[A-Za-z0-9_$-]*$/.test(schema) && schema.length <= 63
  if (isName && !/^pg_/i.test(schema) && schema !== 'information_schema') return schema
  throw expected(
    'schema',
    'a name of 1 to 63 letters, digits, _, - or one $, that begins with a letter or _ and not with pg_',
    schema,
  )
}
