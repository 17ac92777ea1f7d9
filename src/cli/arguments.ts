import { parseArgs } from 'node:util'
import { LONGEST_MS, millisecondsIn } from '../base/duration.ts'
import { expected, UsageError } from './usage-error.ts'

/** An option as it is parsed, as `--help` shows it, and as a shell completes it. */
export interface Option {
  readonly short?: string
  /** The name of its value in the help. An option without it is a flag. */
  readonly value?: string
  /** The only values that it takes. */
  readonly choices?: readonly string[]
  /** It is refused when it is given again. The last value of any other option counts. */
  readonly isOnce?: true
  /** Its value is the URL of a store, with one of these schemes. */
  readonly schemes?: readonly string[]
  readonly help: string
}

/** A command as it is parsed, as `--help` shows it, and as a shell completes it. */
export interface Subcommand {
  readonly name: string
  /** What follows the name in the usage line. */
  readonly usage: string
  readonly summary: string
  /** Subcommand lines for the help. */
  readonly examples: readonly string[]
  readonly options: Readonly<Record<string, Option>>
  /** Text of the help below the options. */
  readonly details?: string
  /** The only first words that it takes. */
  readonly firstWords?: readonly string[]
  /** The words behind `--` are a command to run and its arguments. */
  readonly takesCommand?: true
}

/** What was typed after the name of a command: its options, its words, and the command behind `--` if it takes one. */
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
    const [first] = this.words
    // Whoever asks for help may not know the words.
    if (first === undefined || command.firstWords?.includes(first) !== false || this.flag('help')) return
    throw expected('the first word', `one of ${command.firstWords.join(', ')}`, first)
  }

  flag(name: string): boolean {
    return this.#values.get(name) === true
  }

  text(name: string): string | undefined {
    const value = this.#values.get(name)
    return value === true ? undefined : value
  }

  /** The text of an option whose `choices` are of this type: the parser has checked it. */
  choice<T extends string>(name: string): T | undefined {
    return this.text(name) as T | undefined
  }

  /** In milliseconds. */
  duration(name: string, range: { readonly leastMs?: number } = {}): number | undefined {
    const text = this.text(name)
    return text === undefined ? undefined : durationIn(`--${name}`, text, range)
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

  /** Of a command that takes options only. */
  refuseWords(advice = ''): void {
    const [word] = this.words
    if (word !== undefined)
      throw new UsageError(`Expected options only, got ${JSON.stringify(word)}.${advice}`)
  }
}

/** In milliseconds. A number without a unit is seconds, as in flock(1), timeout(1) and top(1). */
function durationIn(name: string, text: string, { leastMs = 0 }: { readonly leastMs?: number } = {}): number {
  const durationMs = Math.ceil(typedMs(text))
  if (durationMs < leastMs) {
    const least = leastMs % 60_000 === 0 ? `${leastMs / 60_000}m` : `${leastMs}ms`
    throw expected(name, `at least ${least}`, text)
  }
  if (durationMs <= LONGEST_MS) return durationMs
  throw expected(name, 'a number of seconds, or a duration such as 500ms, 5m or 1h, up to 576h', text)
}

/** `NaN` for what is no duration. */
export function typedMs(text: string): number {
  return millisecondsIn(SECONDS.test(text) ? `${text}s` : text)
}

const SECONDS = /^\d+(?:\.\d+)?$/

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
    // Not what every object has, such as `constructor`.
    const option = Object.hasOwn(command.options, token.name) ? command.options[token.name] : undefined
    if (option === undefined) {
      throw new UsageError(`Expected an option of \`holdfast ${command.name}\`, got ${token.rawName}.`)
    }
    checkValue(token.rawName, option, token.value)
    // A value that is missing, such as an empty $REASON, must not swallow the option behind it.
    if (token.inlineValue === false && /^-./.test(token.value)) {
      const { rawName, value } = token
      const inline = rawName.startsWith('--') ? `${rawName}=${value}` : `${rawName}${value}`
      throw expected(rawName, `followed by ${option.value}, or written as ${inline}`, value)
    }
    if (option.isOnce === true && values.has(token.name))
      throw new UsageError(`Expected ${token.rawName} once, got it more than once.`)
    values.set(token.name, token.value ?? true)
  }
  return { values, words: positionals }
}

function checkValue(name: string, { value: shape, choices }: Option, value: string | undefined): void {
  if (shape === undefined) {
    if (value !== undefined) throw expected(name, 'given without a value', value)
    return
  }
  if (value === undefined || value === '') throw expected(name, `followed by ${shape}`, value)
  if (choices?.includes(value) === false) throw expected(name, `one of ${choices.join(', ')}`, value)
}
