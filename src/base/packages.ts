import { InvalidArgumentError } from '../errors.ts'

/**
 * A package that the user installs beside this one, or undefined if it is not installed. Throws if the package is
 * installed and broken.
 */
export async function imported<T>(load: () => Promise<T>): Promise<T | undefined> {
  try {
    return await load()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND') return undefined
    throw error
  }
}

/** The error where none of the packages is installed, the one to be advised first. */
export function notInstalled(advised: string, ...others: readonly string[]): InvalidArgumentError {
  const names = [advised, ...others].map((name) => `\`${name}\``).join(' or ')
  const got = others.length === 0 ? 'got none. Add it' : 'got neither. Add one of them'
  return new InvalidArgumentError(
    `Expected the package ${names} to be installed, ${got}: \`npm install ${advised}\`.`,
  )
}
