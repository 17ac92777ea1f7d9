import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

/** An options object with no names but the known ones: a misspelt option must not be a guard that is not there. */
export function checkOptions(options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    throw new InvalidArgumentError(`Expected \`options\` to be an object, got ${show(options)}.`)
  }
  const stranger = Object.keys(options).find((name) => !known.includes(name))
  if (stranger === undefined) return
  const names = known.map((name) => `\`${name}\``).join(', ')
  throw new InvalidArgumentError(`Expected \`options\` to have nothing but ${names}, got \`${stranger}\`.`)
}
