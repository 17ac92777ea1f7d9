import { DRIVERS } from '../stores/drivers.ts'
import type { Option, ParsedArguments } from './arguments.ts'
import { fileOption, type SecretOption, secretOf } from './secret.ts'
import { complain } from './terminal.ts'

const STORE: SecretOption = { name: 'store', variable: 'HOLDFAST_STORE' }

export const ALL_SCHEMES: readonly string[] = DRIVERS.flatMap(({ schemes }) => schemes)

/** Locks in memory are of no use to most commands: no other process has them. */
const SHARED: readonly string[] = ALL_SCHEMES.filter((scheme) => scheme !== 'memory')

export interface StoreOption {
  /** What `--store` takes, and what is used without it. */
  readonly help?: string
  readonly schemes?: readonly string[]
}

/** The options of every subcommand that takes a store. */
export function storeOptions({
  help = 'where the keys live; default: HOLDFAST_STORE, else a file in your state folder, which other users do not share',
  schemes = SHARED,
}: StoreOption = {}): Readonly<Record<string, Option>> {
  return {
    store: { value: 'URL', schemes, help: `${help}. Others can read a password here: see --store-file` },
    ...fileOption(STORE),
  }
}

/** Where the keys live. */
export interface StorePlace {
  readonly url: string
  /** No store was given: it is the file in the state folder of the user, which other users do not share. */
  readonly isDefault: boolean
}

export async function placeOf(given: ParsedArguments): Promise<StorePlace> {
  const url = givenUrl(given)
  if (url !== undefined) return { url, isDefault: false }
  const { defaultSqlitePath } = await import('../stores/sqlite/index.ts')
  return { url: `sqlite:${defaultSqlitePath()}`, isDefault: true }
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

/** What was given instead of a URL with the right scheme. Not the text itself, which may hold a password. */
export function gotInstead(text: string | undefined): string {
  if (text === undefined) return 'nothing'
  const [scheme] = /^[a-z][a-z0-9+.-]*(?=:)/i.exec(text) ?? []
  return scheme === undefined ? 'a text without a scheme' : `one that begins with ${JSON.stringify(scheme)}`
}

/** A password in any URL of a list, before the host or as a parameter. */
const PASSWORD = /\/\/[^/?#,@\s]*:[^/?#,@\s]+@|[?&;]\w*pass(?:word|wd)?=[^&]/i

/** How a URL with the scheme begins: `redis://`, but `sqlite:`. */
export function beginningOf(scheme: string): string {
  const driver = DRIVERS.find(({ schemes }) => schemes.includes(scheme))
  return driver?.example.startsWith(`${driver.schemes[0]}://`) ? `${scheme}://` : `${scheme}:`
}
