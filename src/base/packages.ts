import { existsSync } from 'node:fs'
import { sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { InvalidArgumentError } from '../errors.ts'
import { fieldOf, messageOf } from './thrown.ts'

/**
 * For `try { return await import('pg') } catch (error) { return absent(error) }`: `undefined` where the package is not installed.
 * The error of a package that is installed and broken is thrown. In this form every bundler takes a package that it does not
 * find for one that may be missing.
 */
export function absent(error: unknown): undefined {
  if (!isAbsence(error)) throw error
}

/** The default export of a package in CommonJS: by `import()` under that name, by `require` the package itself. */
export function defaultOf<T>(module: { readonly default: T }): T {
  return module.default ?? (module as unknown as T)
}

/**
 * A package that a bundler must leave alone, such as one with a compiled part; `undefined` where it is not installed. It is looked
 * for beside this module, and from a bundle beside the program.
 */
export function required(name: string): unknown {
  // Not imported: webpack replaces what it sees of it.
  const { createRequire } = process.getBuiltinModule('node:module')
  for (const place of [HERE, process.argv[1]]) {
    if (place === undefined) continue
    try {
      return createRequire(place)(name)
    } catch (error) {
      absent(error)
    }
  }
  return undefined
}

/** A bundle in CommonJS has none. */
const HERE: string | undefined = import.meta.url

/** `require`, `import()` and the code that a bundler leaves for a package that it did not find. */
function isAbsence(error: unknown): boolean {
  // Not `instanceof Error`: in Jest the error is of another realm.
  const code = fieldOf(error, 'code')
  if (code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND') return true
  // Vite gives its error no code.
  return /^Could not resolve ".*" imported by "holdfast"/.test(messageOf(error))
}

/** The error where none of the packages is installed, the one to be advised first. */
export function notInstalled(advised: string, ...others: readonly string[]): InvalidArgumentError {
  const names = [advised, ...others].map((name) => `\`${name}\``).join(' or ')
  const got = others.length === 0 ? 'got none. Add it' : 'got neither. Add one of them'
  return new InvalidArgumentError(
    `Expected the package ${names} to be installed, ${got}: \`${installing(advised)}\`.`,
  )
}

/** The error for a client that is too old: `ioredis 5 or newer`, and what to install. */
export function tooOld(needed: string, advised: string): InvalidArgumentError {
  return new InvalidArgumentError(
    `Expected a client of ${needed}, got one of an older version: \`${installing(advised)}\`.`,
  )
}

/** The command that installs a package where this one finds it. */
export function installing(name: string): string {
  const path = HERE?.startsWith('file:') ? fileURLToPath(HERE) : ''
  const parent = path.slice(0, path.indexOf(`${sep}node_modules${sep}`) + 1)
  // npx installs into a folder of its own for each set of packages.
  if (parent.includes(`${sep}_npx${sep}`)) return `npx -p holdfast -p ${name} holdfast …`
  // Only a project has a manifest beside its node_modules.
  const isGlobal = parent !== '' && !existsSync(`${parent}package.json`)
  return `npm install ${isGlobal ? '--global ' : ''}${name}`
}
