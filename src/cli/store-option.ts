import { connect, type Locks, type LocksOptions } from '../index.ts'
import type { Option, ParsedArguments } from './arguments.ts'
import { fileOption, type SecretOption, secretOf } from './secret.ts'
import { complain } from './terminal.ts'
import { UsageError } from './usage-error.ts'

const STORE: SecretOption = { name: 'store', variable: 'HOLDFAST_STORE' }

/** The options of every subcommand that takes a store. A few describe `--store` differently. */
export function storeOptions(
  help: string = 'where the keys live; default: HOLDFAST_STORE, else a file in your state folder',
): Readonly<Record<string, Option>> {
  return {
    store: { value: 'URL', help: `${help}. Others can read a password here: see --store-file` },
    ...fileOption(STORE),
  }
}

export async function openLocks(url: string, options: LocksOptions = {}): Promise<Locks> {
  // A lock in this process's memory excludes nobody.
  if (/^memory:/i.test(url)) throw new UsageError('Expected a store that other processes share, got memory:.')
  return connect(url, options)
}

export async function urlOf(given: ParsedArguments): Promise<string> {
  const url = givenUrl(given)
  if (url !== undefined) return url
  const { defaultSqlitePath } = await import('../stores/sqlite/index.ts')
  return `sqlite:${defaultSqlitePath()}`
}

/** The URL that was given; `undefined` where none was. */
export function givenUrl(given: ParsedArguments): string | undefined {
  const secret = secretOf(given, STORE)
  if (secret === undefined) return undefined
  // Only in a terminal: cron would send a mail for each run.
  if (secret.isInArguments && PASSWORD.test(secret.text) && process.stderr.isTTY) {
    complain(
      'everybody on this machine can read the password in --store: use --store-file or HOLDFAST_STORE instead',
    )
  }
  return secret.text
}

/** A password in any URL of a list, before the host or as a parameter. */
const PASSWORD = /\/\/[^/?#,@\s]*:[^/?#,@\s]+@|[?&;]\w*pass(?:word|wd)?=[^&]/i
