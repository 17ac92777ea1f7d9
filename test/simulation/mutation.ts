import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { transformWithOxc } from 'vite'
import { type Implementation, implementationIn, MODULES } from './implementation.ts'
import type { Edit, Mutant } from './mutants.ts'

/** Builds a mistake into the sources, as modules of their own. Their folder is removed when `use` is done. */
export async function withMutant<T>(
  mutant: Mutant,
  use: (implementation: Implementation) => Promise<T>,
): Promise<T> {
  return withEdits({ modules: MODULES, edits: mutant.edits }, async (folder) =>
    use(await implementationIn(folder)),
  )
}

/** Builds copies of some modules with edits in them, and of all modules that they import. They are removed when `use` is done. */
export async function withEdits<T>(
  { modules, edits }: { readonly modules: readonly string[]; readonly edits: readonly Edit[] },
  use: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }\n')
    symlinkSync(fileURLToPath(new URL('../../node_modules', import.meta.url)), join(folder, 'node_modules'))
    await translateAll(folder, modules, edits)
    return await use(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const SOURCE = new URL('../../src/', import.meta.url)
const IMPORT = /(from\s*["'])(\.[^"']*)\.ts(["'])/g

/** Translates the modules, and all modules that they import. */
async function translateAll(
  folder: string,
  modules: readonly string[],
  edits: readonly Edit[],
): Promise<void> {
  const found = new Set<string>(modules)
  for (const module of found) {
    const path = `${module}.ts`
    const source = edited(path, edits)
    const { code } = await transformWithOxc(source, path)
    for (const [, , specifier] of code.matchAll(IMPORT)) found.add(join(dirname(module), specifier ?? ''))
    const target = join(folder, `${module}.js`)
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, code.replace(IMPORT, '$1$2.js$3'))
  }
  for (const { file } of edits)
    assert(found.has(file.replace(/\.ts$/, '')), `Expected ${file} to be imported`)
}

function edited(path: string, edits: readonly Edit[]): string {
  let source = readFileSync(new URL(path, SOURCE), 'utf8')
  for (const { file, find, replace } of edits) {
    if (file !== path) continue
    assert.equal(source.split(find).length, 2, `Expected ${file} to hold this once:\n${find}`)
    source = source.replace(find, () => replace)
  }
  return source
}
