import { isDecodable } from '../../../base/text.ts'
import { InvalidArgumentError } from '../../../errors.ts'

/** The URL itself is in no message: it may hold a password. */
export function checkUrl(url: string): void {
  const expected = 'Expected `url` to be like redis://user:password@host:6379/0 (or rediss:// for TLS)'
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined) throw new InvalidArgumentError(`${expected}, got something that is not a URL.`)
  const { protocol, hostname, username, password } = parsed
  if (protocol !== 'redis:' && protocol !== 'rediss:') {
    throw new InvalidArgumentError(`${expected}, got one that begins with ${protocol}`)
  }
  if (hostname === '') throw new InvalidArgumentError(`${expected}, got one without a host.`)
  if (databaseOf(parsed) === undefined) {
    throw new InvalidArgumentError(
      `${expected}, got one whose path or \`?db=\` is not the number of a database.`,
    )
  }
  if (!isDecodable(username + password)) {
    throw new InvalidArgumentError(
      `${expected}, got one whose user or password has a % that is not written as %25.`,
    )
  }
}

/** What stands behind the ? of a URL for the store, and not for the client. */
export interface UrlOptions {
  readonly prefix?: string
  readonly replicas?: number
}

/** The names of {@link UrlOptions}. */
export const URL_OPTIONS: readonly string[] = ['prefix', 'replicas']

/** The store's own options behind the ? of a URL. A + is a plus there, and not a space as in a form: it may be a part of a password. */
export function parametersIn(query: string): URLSearchParams {
  return new URLSearchParams(query.replaceAll('+', '%2B'))
}

/** Their values are checked as those of the options. */
export function urlOptionsIn(parameters: URLSearchParams): UrlOptions {
  const [prefix, replicas] = [parameters.get('prefix'), parameters.get('replicas')]
  return {
    ...(prefix !== null && { prefix }),
    ...(replicas !== null && { replicas: replicas === '' ? Number.NaN : Number(replicas) }),
  }
}

/** The number of the database that a URL names, as its path or as `?db=`. Undefined where that is no number, or not one. */
export function databaseOf({ pathname, searchParams }: URL): number | undefined {
  const named = [pathname.slice(1), ...searchParams.getAll('db')].filter((text) => text !== '')
  const [first = '0'] = named
  const isOne = named.every((text) => /^\d{1,9}$/.test(text) && Number(text) === Number(first))
  return isOne ? Number(first) : undefined
}
