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

export function parseShared(shared: unknown): boolean {
  if (shared === undefined || typeof shared === 'boolean') return shared ?? false
  throw new InvalidArgumentError(`Expected \`shared\` to be true or false, got ${show(shared)}.`)
}
