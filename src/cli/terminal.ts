import type { WriteStream } from 'node:tty'
import { styleText } from 'node:util'
import { plain } from './text.ts'

export type Style = Parameters<typeof styleText>[0]
export type Paint = (style: Style, text: string) => string

/** Colours in a terminal only: not in files and pipes, nor with NO_COLOR or TERM=dumb. */
export function paintFor(stream: NodeJS.WriteStream): Paint {
  const colours = stream.isTTY && (stream as WriteStream).hasColors()
  return colours ? (style, text) => styleText(style, text, { validateStream: false }) : (_, text) => text
}

/** The width of the terminal on standard output; unlimited for files and pipes. */
export function roomOnScreen(): number {
  return (process.stdout.isTTY && process.stdout.columns) || Number.POSITIVE_INFINITY
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** Prints one line to standard error. Foreign text in it, such as a reason, is escaped and cannot control the terminal. */
export function complain(line: string): void {
  process.stderr.write(`holdfast: ${plain(line)}\n`)
}
