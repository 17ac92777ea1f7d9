import type { ParsedArguments } from './arguments.ts'
import { givenUrl } from './store-option.ts'
import { UsageError } from './usage-error.ts'

/** The URL of `--store` or `HOLDFAST_STORE`, for commands that know PostgreSQL only. */
export function givenPostgresUrl(given: ParsedArguments): string {
  const url = givenUrl(given)
  if (url !== undefined && /^postgres(ql)?:/i.test(url)) return url
  // Not the url itself, which may hold a password.
  const got = url === undefined ? 'nothing' : `one that begins with ${JSON.stringify(url.split(':')[0])}`
  throw new UsageError(`Expected --store or HOLDFAST_STORE to be a postgres:// url, got ${got}.`)
}
