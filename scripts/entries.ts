import { readFileSync } from 'node:fs'

/** A name under which the package can be imported, and the module behind it. */
export interface Entry {
  /** `.` or `./redis`, as package.json has it. */
  readonly subpath: string
  /** The source, below `src` and without its extension: `stores/redis/index`. */
  readonly module: string
}

export interface Manifest {
  readonly name: string
  readonly exports: Readonly<Record<string, { readonly import: string; readonly require: string } | string>>
}

export function manifestOf(root: string): Manifest {
  return JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as Manifest
}

/** Every entry of code. `package.json` itself is exported, too, and is none. */
export function entriesOf({ exports }: Manifest): readonly Entry[] {
  return Object.entries(exports).flatMap(([subpath, target]) =>
    typeof target === 'string'
      ? []
      : [{ subpath, module: target.import.replace(/^\.\/dist\/(.*)\.js$/, '$1') }],
  )
}
