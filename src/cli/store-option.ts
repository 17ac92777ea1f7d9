import { connect, type Locks, type LocksOptions } from '../index.ts'
import type { Option, ParsedArguments } from './arguments.ts'
import { fileOption, type SecretOption, secretOf } from './secret.ts'
import { complain } from './terminal.ts'
import { UsageError } from './usage-error.ts'

const STORE: SecretOption = { name: 'store', variable: 'HOLDFAST_STORE' }

/** The options of every command that takes a store; what `--store` takes differs in a few. */
export function storeOptions(
  help: string = 'where the keys live; default: HOLDFAST_STORE, else a file in your state folder',
): Readonly<Record<string, Option>> {
  return {
    store: { value: 'URL', help: `${help}. Others can read a password here: see --store-file` },
    ...fileOption(STORE),
  }
}

export async function openLocks(url: string, options: LocksOptions = {}): Promise<Locks> {
  // Held against nobody, and gone with this process.
  if (/^memory:/i.test(url)) throw new UsageError('Expected a store that other processes share, got memory:.')
  return connect(url, options)
}

export async function urlOf(given: ParsedArguments): Promise<string> {
  const url = givenUrl(given)
  if (url !== undefined) return url
  const { defaultSqlitePath } = await import('../stores/sqlite/index.ts')
  return `sqlite:${defaultSqlitePath()}`
}

/** Undefined where none was given. */
export function givenUrl(given: ParsedArguments): string | undefined {
  const secret = secretOf(given, STORE)
  if (secret === undefined) return undefined
  // Only to somebody who is there: cron would send a mail for it every few minutes.
  if (secret.isInArguments && PASSWORD.test(secret.text) && process.stderr.isTTY) {
    complain(
      'everybody on this machine can read the password in --store: use --store-file or HOLDFAST_STORE instead',
    )
  }
  return secret.text
}

/** In any of the addresses of a list, before the host or as a parameter. */
const PASSWORD = /\/\/[^/?#,@\s]*:[^/?#,@\s]+@|[?&;]\w*pass(?:word|wd)?=[^&]/i
