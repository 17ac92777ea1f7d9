import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { transformWithOxc } from 'vite'
import { type Implementation, implementationIn, MODULES } from './implementation.ts'
import type { Edit, Mutant } from './mutants.ts'

/** Builds a mistake into the sources, as modules of their own. Their folder is removed when `use` is done. */
export async function withMutant<T>(
  mutant: Mutant,
  use: (implementation: Implementation) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }\n')
    await translateAll(folder, mutant.edits)
    return await use(await implementationIn(folder))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const SOURCE = new URL('../../src/', import.meta.url)
const IMPORT = /(from\s*["'])(\.[^"']*)\.ts(["'])/g

/** Translates the modules of the implementation, and all modules that they import. */
async function translateAll(folder: string, edits: readonly Edit[]): Promise<void> {
  const found = new Set<string>(MODULES)
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
