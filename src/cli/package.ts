import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The folder of this package. The build puts this module into a file of another folder. */
const FOLDER: string = fileURLToPath(import.meta.url).replace(/^(.*)[\\/](?:src|dist)[\\/].*$/, '$1')

/** The file that a new process is started with, by its name in `scripts/build.ts`. */
export function programOf(name: string): string {
  return join(FOLDER, 'dist/cli', `${name}.js`)
}

export function packageVersion(): string {
  const manifest = readFileSync(join(FOLDER, 'package.json'), 'utf8')
  return (JSON.parse(manifest) as { readonly version: string }).version
}
