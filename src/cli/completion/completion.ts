import type { ParsedArguments, Subcommand } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { print } from '../terminal.ts'
import { UsageError } from '../usage-error.ts'
import { bashScript } from './bash.ts'
import type { SHELLS } from './command.ts'
import { fishScript } from './fish.ts'
import { zshScript } from './zsh.ts'

type ShellName = (typeof SHELLS)[number]

const SCRIPTS: Readonly<Record<ShellName, (commands: readonly Subcommand[]) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
}

export async function printCompletion(
  given: ParsedArguments,
  commands: readonly Subcommand[],
): Promise<number> {
  const [shell, more] = given.words
  if (shell === undefined) throw new UsageError('Expected bash, zsh or fish, got nothing.')
  if (more !== undefined) throw new UsageError(`Expected one shell, got ${given.words.length}.`)
  // The parser has checked the first word.
  print(SCRIPTS[shell as ShellName](commands))
  return EXIT.ok
}
