import type { ParsedArguments } from './arguments.ts'
import { UsageError } from './usage-error.ts'

/** Which options each first word of a command takes. A word takes the options that are named in no list, too. */
export type ActionOptions<Action extends string> = Readonly<Record<Action, readonly string[]>>

/** An option that is ignored may change more than was meant: `jobs remove --state dead --limit 10`. */
export function refuseOptions<Action extends string>(
  given: ParsedArguments,
  { command, action, options }: { command: string; action: Action; options: ActionOptions<Action> },
): void {
  const refused = Object.values<readonly string[]>(options)
    .flat()
    .find((name) => (given.flag(name) || given.text(name) !== undefined) && !options[action].includes(name))
  if (refused !== undefined)
    throw new UsageError(`Expected an option of \`holdfast ${command} ${action}\`, got --${refused}.`)
}
