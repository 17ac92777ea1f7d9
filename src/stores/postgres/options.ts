import { show } from '../../base/duration.ts'
import { InvalidArgumentError } from '../../errors.ts'

/** @throws {InvalidArgumentError} unless it is an object of options, with none that is not known. */
export function checkOptions(options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new InvalidArgumentError(`Expected the options to be an object, got ${show(options)}.`)
  }
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue
    const names = known.map((one) => `\`${one}\``).join(', ')
    throw new InvalidArgumentError(`Expected the options to be among ${names}, got \`${name}\`.`)
  }
}

export function parseFlag(name: string, value: unknown, byDefault: boolean): boolean {
  if (value === undefined || typeof value === 'boolean') return value ?? byDefault
  throw new InvalidArgumentError(`Expected \`${name}\` to be true or false, got ${show(value)}.`)
}
