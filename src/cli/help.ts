import { DRIVERS } from '../stores/drivers.ts'
import type { Option, Subcommand } from './arguments.ts'
import { roomOnScreen } from './terminal.ts'
import { wrap } from './text.ts'

export function helpOf(command: Subcommand): string {
  const options = Object.entries(command.options).map(
    ([name, option]) => [leftOf(name, option), option.help] as const,
  )
  const parts = [
    `Usage: holdfast ${command.name} ${command.usage}`,
    command.summary,
    `Options:\n${columns(options)}`,
    command.details,
  ]
  return fitted(`${parts.filter((part) => part !== undefined).join('\n\n')}\n`)
}

export function overview(commands: readonly Subcommand[]): string {
  const list = commands.map(({ name, summary }) => [name, summary] as const)
  return fitted(`Usage: holdfast <command> [options]

Locks that processes share, over a file or a server.

Commands:
${columns(list)}

Options:
${columns([
  ['-h, --help', 'what a command takes: holdfast run --help'],
  ['-V, --version', 'the version of this program'],
])}

The store is --store URL, else HOLDFAST_STORE, else a file in your state folder:
${URLS}
Others can read a command line: a URL with a password goes into a file
(--store-file PATH or HOLDFAST_STORE_FILE) or into HOLDFAST_STORE.
`)
}

/** Locks in memory are of no use to a command: no other process has them. */
const URLS = DRIVERS.map(({ example }) => example)
  .filter((example) => example !== 'memory:')
  .map((example) => `  ${example}`)
  .join('\n')

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
