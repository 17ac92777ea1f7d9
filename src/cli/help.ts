import { DRIVERS } from '../stores/drivers.ts'
import type { Option, ParsedArguments, Subcommand } from './arguments.ts'
import { EXIT } from './exit-codes.ts'
import { print, roomOnScreen } from './terminal.ts'
import { wrap } from './text.ts'
import { UsageError } from './usage-error.ts'

export async function showHelp(given: ParsedArguments, commands: readonly Subcommand[]): Promise<number> {
  const [name, more] = given.words
  if (more !== undefined) throw new UsageError(`Expected one COMMAND, got ${given.words.length}.`)
  const command = commands.find((known) => known.name === name)
  print(command === undefined ? overview(commands) : helpOf(command))
  return EXIT.ok
}

export function helpOf({ name, usage, summary, examples, options, details }: Subcommand): string {
  const hasDurations = Object.values(options).some(({ value }) => value === 'DURATION')
  const parts = [
    `Usage: holdfast ${name} ${usage}`,
    summary,
    `Examples:\n${examples.map((line) => `  ${line}`).join('\n')}`,
    `Options:\n${columns(Object.entries(options).map(([each, option]) => [leftOf(each, option), option.help]))}`,
    hasDurations ? DURATIONS : undefined,
    details,
    storesOf(options['store']),
  ]
  return fitted(parts.filter((part) => part !== undefined).join('\n\n'))
}

const DURATIONS = `A DURATION is a number of seconds, as in flock(1), or a number with a unit:
500ms, 10s, 5m, 1h.`

/** Every URL that the option takes. */
function storesOf(option: Option | undefined): string | undefined {
  if (option?.schemes === undefined) return undefined
  const { schemes } = option
  const taken = DRIVERS.filter((driver) => driver.schemes.some((scheme) => schemes.includes(scheme)))
  return `Stores:\n${columns(taken.map(({ example, summary }) => [example, summary]))}`
}

export function overview(commands: readonly Subcommand[]): string {
  const shared = commands.find(({ name }) => name === 'run')?.options['store']
  return fitted(`Usage: holdfast <command> [options]

Locks that processes share, over a file or a server.

Commands:
${columns(commands.map(({ name, summary }) => [name, summary]))}

Options:
${columns([
  ['-h, --help', 'what a command takes: holdfast run --help'],
  ['-V, --version', 'the version of this program'],
])}

The store is --store URL, else HOLDFAST_STORE, else a file in your state folder.
That file is per user: commands of other users do not share its keys.

${storesOf(shared)}

Others can read a command line: a URL with a password goes into a file
(--store-file PATH or HOLDFAST_STORE_FILE) or into HOLDFAST_STORE.`)
}

function leftOf(name: string, { short, value }: Option): string {
  return `${short === undefined ? '    ' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`
}

function columns(rows: readonly (readonly [string, string])[]): string {
  const left = Math.max(...rows.map(([name]) => name.length))
  const margin = ' '.repeat(left + 4)
  const room = screen() - margin.length
  return rows
    .map(([name, text]) => {
      // The text goes below its name where the column beside it would hold one word a line.
      if (room < NARROWEST_TEXT) return `  ${name}\n      ${wrap(text, screen() - 6).join('\n      ')}`
      return `  ${name.padEnd(left)}  ${wrap(text, room).join(`\n${margin}`)}`
    })
    .join('\n')
}

function fitted(text: string): string {
  return text
    .split('\n')
    .flatMap((line) => wrap(line, screen()))
    .join('\n')
}

function screen(): number {
  return Math.max(NARROWEST_TEXT, Math.min(roomOnScreen(), WIDTH))
}

const NARROWEST_TEXT = 24

/** Wider lines are hard to read, and files and pipes have no width. */
const WIDTH = 80
