import { InvalidArgumentError } from '../errors.ts'
import { show } from './duration.ts'

/** @throws {InvalidArgumentError} unless it is an object of options, with none that is not known. */
export function checkOptions(options: unknown, known: Iterable<string>): asserts options is object {
  checkObject(options)
  const names = [...known]
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    const list = names.map((one) => `\`${one}\``).join(', ')
    throw new InvalidArgumentError(`Expected the options to be among ${list}, got \`${name}\`.`)
  }
}

export function checkObject(options: unknown): asserts options is object {
  if (typeof options === 'object' && options !== null && !Array.isArray(options)) return
  throw new InvalidArgumentError(`Expected the options to be an object, got ${show(options)}.`)
}
