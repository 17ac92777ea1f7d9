import type { WriteStream } from 'node:tty'
import { styleText } from 'node:util'
import { plain } from './text.ts'

export type Style = Parameters<typeof styleText>[0]
export type Paint = (style: Style, text: string) => string

/** Paints where somebody looks at it: not into files and pipes, nor where NO_COLOR or TERM=dumb say so. */
export function paintFor(stream: NodeJS.WriteStream): Paint {
  const colours = stream.isTTY && (stream as WriteStream).hasColors()
  return colours ? (style, text) => styleText(style, text, { validateStream: false }) : (_, text) => text
}

/** How wide the screen is that standard output goes to; files and pipes have no end. */
export function roomOnScreen(): number {
  return (process.stdout.isTTY && process.stdout.columns) || Number.POSITIVE_INFINITY
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** One line to people, prefixed as every tool does it. What strangers wrote into it, such as a reason, cannot steer the terminal. */
export function complain(line: string): void {
  process.stderr.write(`holdfast: ${plain(line)}\n`)
}
