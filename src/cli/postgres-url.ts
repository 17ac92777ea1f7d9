import type { ParsedArguments } from './arguments.ts'
import { givenUrl, gotInstead } from './store-option.ts'
import { UsageError } from './usage-error.ts'

/** The URL of `--store` or `HOLDFAST_STORE`, for commands that know PostgreSQL only. */
export function givenPostgresUrl(given: ParsedArguments): string {
  const url = givenUrl(given)
  if (url !== undefined && /^postgres(ql)?:/i.test(url)) return url
  throw new UsageError(`Expected --store or HOLDFAST_STORE to be a postgres:// URL, got ${gotInstead(url)}.`)
}
