import { parseArgs } from 'node:util'
import { LONGEST_MS, millisecondsIn } from '../base/duration.ts'
import { expected, UsageError } from './usage-error.ts'

/** An option as it is parsed and as `--help` shows it. */
export interface Option {
  readonly short?: string
  /** The name of its value in the help. An option without it is a flag. */
  readonly value?: string
  readonly help: string
}

export interface Subcommand {
  readonly name: string
  /** What follows the name in the usage line. */
  readonly usage: string
  readonly summary: string
  readonly options: Readonly<Record<string, Option>>
  /** Text of the help below the options. */
  readonly details?: string
  /** The words behind `--` are a command to run and its arguments. */
  readonly takesCommand?: true
  /** Resolves with the exit code. */
  run(given: ParsedArguments): Promise<number>
}

/** What was typed after the name of a subcommand: its options, its words, and the command behind `--` if it takes one. */
export class ParsedArguments {
  readonly words: readonly string[]
  readonly rest: readonly string[]
  readonly #values: ReadonlyMap<string, string | true>

  constructor(command: Subcommand, typed: readonly string[]) {
    const end = typed.indexOf('--')
    const { values, words } = parse(command, end === -1 ? typed : typed.slice(0, end))
    const behind = end === -1 ? [] : typed.slice(end + 1)
    this.#values = values
    if (command.takesCommand !== true) {
      this.words = [...words, ...behind]
      this.rest = []
    } else if (words.length === 0 && behind[1] === '--') {
      // `-- WORD -- command`: the word may begin with a dash.
      this.words = behind.slice(0, 1)
      this.rest = behind.slice(2)
    } else {
      this.words = words
      this.rest = behind
    }
  }

  flag(name: string): boolean {
    return this.#values.get(name) === true
  }

  text(name: string): string | undefined {
    const value = this.#values.get(name)
    return value === true ? undefined : value
  }

  /** In milliseconds. */
  duration(name: string, { leastMs = 0 }: { readonly leastMs?: number } = {}): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const durationMs = Math.ceil(millisecondsIn(text))
    if (durationMs < leastMs) throw expected(`--${name}`, `at least ${leastMs}ms`, text)
    if (durationMs <= LONGEST_MS) return durationMs
    throw expected(`--${name}`, 'a duration with a unit, such as 500ms, 10s, 5m or 1h, up to 576h', text)
  }

  count(name: string, range: { readonly least: number; readonly most: number }): number | undefined {
    const text = this.text(name)
    if (text === undefined) return undefined
    const count = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
    if (count >= range.least && count <= range.most) return count
    throw expected(`--${name}`, `a whole number from ${range.least} to ${range.most}`, text)
  }

  /** The one word that the command takes. */
  word(name: string): string {
    const [first, second] = this.words
    if (first === undefined) throw new UsageError(`Expected ${name}, got nothing.`)
    if (second !== undefined)
      throw new UsageError(`Expected ${name}, got ${JSON.stringify(first)} and ${JSON.stringify(second)}.`)
    return first
  }
}

function parse(
  command: Subcommand,
  typed: readonly string[],
): { values: ReadonlyMap<string, string | true>; words: readonly string[] } {
  const options = Object.fromEntries(
    Object.entries(command.options).map(([name, { short, value }]) => [
      name,
      { type: value === undefined ? ('boolean' as const) : ('string' as const), ...(short && { short }) },
    ]),
  )
  // Not strict, as Node's own messages do not name what was expected.
  const { tokens, positionals } = parseArgs({
    args: [...typed],
    options,
    allowPositionals: true,
    strict: false,
    tokens: true,
  })
  const values = new Map<string, string | true>()
  for (const token of tokens) {
    if (token.kind !== 'option') continue
    const option = command.options[token.name]
    if (option === undefined) {
      throw new UsageError(`Expected an option of \`holdfast ${command.name}\`, got ${token.rawName}.`)
    }
    if (option.value === undefined && token.value !== undefined) {
      throw expected(token.rawName, 'given without a value', token.value)
    }
    if (option.value !== undefined && (token.value === undefined || token.value === '')) {
      throw expected(token.rawName, `followed by ${option.value}`, token.value)
    }
    values.set(token.name, token.value ?? true)
  }
  return { values, words: positionals }
}
