import { isDecodable } from '../../base/text.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { databaseOf, parametersIn } from '../redis/server/server-url.ts'
import type { RedlockStoreOptions } from './options.ts'

export interface RedlockUrl {
  /** One URL for each server. */
  readonly servers: readonly string[]
  /** What stands behind the last server: `?maxTtl=5m&prefix=app:`. Not checked yet. */
  readonly options: Pick<RedlockStoreOptions, 'prefix' | 'maxTtl'>
}

/**
 * Reads `redlock:redis://a:6379,redis://b:6379,redis://c:6379?maxTtl=5m&prefix=app:`. The URLs themselves are in no message: they
 * may hold passwords.
 *
 * @throws {InvalidArgumentError} when the URL is not what it should be.
 */
export function parseRedlockUrl(url: unknown): RedlockUrl {
  const [, list] = typeof url === 'string' ? (/^redlock:(.*)$/is.exec(url) ?? []) : []
  if (list === undefined) throw new InvalidArgumentError(`${EXPECTED}, got something else.`)
  if (list.trim() === '') throw new InvalidArgumentError(`${EXPECTED}, got an empty list.`)
  const parts = list.split(/,(?=\s*(?:rediss?:|$))/i)
  const servers = parts.map((text, index) => parseServer(text.trim(), index + 1))
  const { search, searchParams } = servers.at(-1) as URL
  const parameters = parametersIn(search)
  const options = OPTIONS.flatMap((name) => {
    const value = parameters.get(name)
    searchParams.delete(name)
    return value === null ? [] : [[name, value] as const]
  })
  for (const [index, { searchParams: left }] of servers.entries()) {
    const name = [...OPTIONS, 'replicas', 'fences'].find((one) => left.has(one))
    if (name === undefined) continue
    throw new InvalidArgumentError(
      `${EXPECTED}?maxTtl=5m&prefix=app:, got \`${name}\` behind server ${index + 1}. Only maxTtl and prefix may stand there, behind the last server.`,
    )
  }
  return { servers: servers.map(({ href }) => href), options: Object.fromEntries(options) }
}

const EXPECTED = 'Expected `url` to be like redlock:redis://a:6379,redis://b:6379,redis://c:6379'
const OPTIONS = ['prefix', 'maxTtl'] as const

function parseServer(text: string, number: number): URL {
  const parsed = URL.canParse(text) ? new URL(text) : undefined
  const isFine =
    (parsed?.protocol === 'redis:' || parsed?.protocol === 'rediss:') &&
    parsed.hostname !== '' &&
    databaseOf(parsed) !== undefined &&
    isDecodable(parsed.username + parsed.password)
  if (isFine) return parsed
  throw new InvalidArgumentError(
    `${EXPECTED}, got a part ${number} that is not the URL of a Redis server, as in redis://user:password@host:6379/0.`,
  )
}
