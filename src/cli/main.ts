#!/usr/bin/env node
import { awaited } from '../base/awaited.ts'
import { explained } from '../base/explained.ts'
import { reportOf } from '../base/thrown.ts'
import { isHoldfastError } from '../errors.ts'
import { ParsedArguments, type Subcommand } from './arguments.ts'
import { COMMANDS } from './commands.ts'
import { EXIT } from './exit-codes.ts'
import { Interrupted } from './interruption.ts'
import { endWhenOutputFails } from './output-failure.ts'
import { packageVersion } from './package.ts'
import { complain } from './terminal.ts'
import { UsageError } from './usage-error.ts'
import { isTold, tellWarnings } from './warnings.ts'

endWhenOutputFails()

// A closed standard error does not change the exit code.
process.stderr.on('error', () => {})

tellWarnings()

void awaited(() => main(process.argv.slice(2))).then((code) => {
  process.exitCode = code
})

async function main([name, ...typed]: readonly string[]): Promise<number> {
  const command = COMMANDS.find((known) => known.name === name)
  if (command === undefined) return withoutCommand(name)
  try {
    const given = new ParsedArguments(command, typed)
    if (!given.flag('help')) return await (await command.load())(given, COMMANDS)
    const { helpOf } = await import('./help.ts')
    process.stdout.write(`${helpOf(command)}\n`)
    return EXIT.ok
  } catch (error) {
    return exitCodeFor(error, command)
  }
}

async function withoutCommand(name: string | undefined): Promise<number> {
  switch (name) {
    case '-V':
    case '--version':
      process.stdout.write(`${packageVersion()}\n`)
      return EXIT.ok
    case '-h':
    case '--help':
      process.stdout.write(`${await overview()}\n`)
      return EXIT.ok
    case undefined:
      process.stderr.write(`${await overview()}\n`)
      return EXIT.usage
    default: {
      const names = COMMANDS.map((known) => known.name).join(', ')
      complain(`Expected a command (${names}), got ${JSON.stringify(name)}. See holdfast --help.`)
      return EXIT.usage
    }
  }
}

async function overview(): Promise<string> {
  return (await import('./help.ts')).overview(COMMANDS)
}

/** Expected errors are one sentence; only a mistake in this program shows a stack. */
function exitCodeFor(error: unknown, command: Subcommand): number {
  const { name } = command
  if (error instanceof Interrupted) return error.exitCode
  if (error instanceof UsageError || isHoldfastError(error, 'invalid-argument')) {
    complain(`${inWordsOf(command, error.message)} See holdfast ${name} --help.`)
    return EXIT.usage
  }
  if (isHoldfastError(error)) {
    if (!isTold(error.message)) complain(explained(error))
    switch (error.code) {
      case 'store-unavailable':
      case 'store-refused':
        return EXIT.storeUnavailable
      case 'lease-lost':
        return EXIT.lost
      default:
        return EXIT.software
    }
  }
  const report = reportOf(error)
  for (const line of report.split('\n')) complain(line)
  return EXIT.software
}

/** What the library calls `key` is KEY on the command line, and `label` is --label. */
function inWordsOf({ options, usage }: Subcommand, message: string): string {
  return message.replace(/^Expected `(\w+)`/, (words, name: string) => {
    const option = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
    if (Object.hasOwn(options, option)) return `Expected --${option}`
    const word = name.toUpperCase()
    return new RegExp(`\\b${word}\\b`).test(usage) ? `Expected ${word}` : words
  })
}
