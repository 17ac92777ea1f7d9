import type { Command, Option } from './arguments.ts'
import { wrap } from './text.ts'

export function helpOf(command: Command): string {
  const options = Object.entries(command.options).map(
    ([name, option]) => [leftOf(name, option), option.help] as const,
  )
  const parts = [
    `Usage: holdfast ${command.name} ${command.usage}`,
    wrap(command.summary, WIDTH).join('\n'),
    `Options:\n${columns(options)}`,
    command.details,
  ]
  return `${parts.filter((part) => part !== undefined).join('\n\n')}\n`
}

export function overview(commands: readonly Command[]): string {
  const list = commands.map(({ name, summary }) => [name, summary] as const)
  return `Usage: holdfast <command> [options]

Locks that processes share, over a file or a server.

Commands:
${columns(list)}

Options:
${columns([
  ['-h, --help', 'what a command takes: holdfast run --help'],
  ['-V, --version', 'the version of this program'],
])}

The store is --store URL, else HOLDFAST_STORE, else a file in your state folder:
  sqlite:./locks.db   redis://localhost:6379   rediss://…
`
}

function leftOf(name: string, { short, value }: Option): string {
  return `${short === undefined ? '    ' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`
}

function columns(rows: readonly (readonly [string, string])[]): string {
  const left = Math.max(...rows.map(([name]) => name.length))
  const margin = ' '.repeat(left + 4)
  return rows
    .map(([name, text]) => `  ${name.padEnd(left)}  ${wrap(text, WIDTH - margin.length).join(`\n${margin}`)}`)
    .join('\n')
}

/** Of the narrowest terminal that people work in. */
const WIDTH = 80
