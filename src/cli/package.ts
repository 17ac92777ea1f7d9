import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

/** This package's own: the modules of the command line are bundled, and do not stand in the files that they were written in. */
const manifest: string = createRequire(import.meta.url).resolve('holdfast/package.json')

/** The file that a new process is started with, by its path below src/cli and without its extension. */
export function programOf(module: string): string {
  return join(dirname(manifest), 'dist/cli', `${module}.js`)
}

export function packageVersion(): string {
  return (JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }).version
}
