import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import type { Option, ParsedArguments } from './arguments.ts'
import { UsageError } from './usage-error.ts'

/** An option whose value may be secret: besides the command line, it can come from the environment or a file. */
export interface SecretOption {
  /** `--name TEXT`, and `--name-file PATH` for a file with the text. */
  readonly name: string
  /** The environment variable with the text. `…_FILE` names a file with it, as Docker's images do. */
  readonly variable: string
}

export interface Secret {
  readonly text: string
  /** Where the text was found, for messages: an option, a variable, or the path of a file. */
  readonly source: string
  /** Other users of the machine can read it in the process list. */
  readonly isInArguments: boolean
}

export function fileOption({ name, variable }: SecretOption): Readonly<Record<string, Option>> {
  const help = `a file (mode 0600) with what --${name} takes; default: ${variable}_FILE`
  return { [`${name}-file`]: { value: 'PATH', help } }
}

/** The command line wins over the environment. Each may give the text or the file, not both. */
export function secretOf(given: ParsedArguments, { name, variable }: SecretOption): Secret | undefined {
  const typed = only(`--${name}`, given.text(name), `--${name}-file`, given.text(`${name}-file`))
  if (typed !== undefined) return typed
  // An empty variable counts as unset, as in most tools.
  const [text, path] = [process.env[variable] || undefined, process.env[`${variable}_FILE`] || undefined]
  const set = only(variable, text, `${variable}_FILE`, path)
  return set && { ...set, isInArguments: false }
}

function only(
  name: string,
  text: string | undefined,
  fileName: string,
  path: string | undefined,
): Secret | undefined {
  if (text !== undefined && path !== undefined)
    throw new UsageError(`Expected either ${name} or ${fileName}, got both.`)
  if (text !== undefined) return { text, source: name, isInArguments: true }
  if (path === undefined) return undefined
  return { text: read(path, fileName), source: path, isInArguments: false }
}

function read(path: string, name: string): string {
  const [text = '', ...more] = textOf(path, name).replace(BYTE_ORDER_MARK, '').trimEnd().split('\n')
  if (text !== '' && more.length === 0) return text
  throw new UsageError(
    `Expected the file of ${name} to have one line, got ${text === '' ? 'an empty file' : 'more'}.`,
  )
}

function textOf(path: string, name: string): string {
  let file: number | undefined
  try {
    file = openSync(path, 'r')
    // The mode of the open file, so that the file cannot be exchanged between check and read.
    const { mode } = fstatSync(file)
    if (process.platform !== 'win32' && (mode & FOR_OTHERS) !== 0) {
      throw new UsageError(
        `Expected the file of ${name} to be for its owner alone, got mode ${octal(mode)}: chmod 600 it.`,
      )
    }
    const bytes = Buffer.alloc(LONGEST_FILE)
    let size = 0
    for (;;) {
      const count = readSync(file, bytes, size, LONGEST_FILE - size, null)
      if (count === 0) return bytes.toString('utf8', 0, size)
      size += count
      if (size === LONGEST_FILE)
        throw new UsageError(
          `Expected the file of ${name} to have less than ${LONGEST_FILE} bytes, got more.`,
        )
    }
  } catch (error) {
    if (error instanceof UsageError) throw error
    const { code, message } = error as NodeJS.ErrnoException
    throw new UsageError(`Expected ${name} to be a file that can be read, got ${code ?? message}.`)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function octal(mode: number): string {
  return (mode & 0o777).toString(8).padStart(4, '0')
}

/** Editors on Windows begin a file with it. */
const BYTE_ORDER_MARK = /^\uFEFF/
/** The group may read: containers may need that. */
const FOR_OTHERS = 0o027
const LONGEST_FILE = 65_536
