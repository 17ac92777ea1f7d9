// Writes the public names of each entry of the package to api/<entry>.txt, sorted, with their signatures and without
// docstrings: a change of the public surface is a line in a diff. `--check` writes nothing and fails where a file differs.
//
//   npm run api [-- --check]
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Declared, type Found, Modules } from './declarations.ts'
import { entriesOf, manifestOf } from './entries.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const manifest = manifestOf(root)

const { values } = parseArgs({ options: { check: { type: 'boolean' } } })
// Fresh declarations: those in dist may be older than the sources.
const declarations = mkdtempSync(join(tmpdir(), 'holdfast-api-'))
try {
  emitDeclarations(declarations)
  const stale = staleFiles(apiTexts(declarations))
  for (const [path, text] of stale) {
    if (values.check) console.error(`${path} differs from the types: run \`npm run api\` and commit it`)
    else if (text === undefined) rmSync(join(root, path))
    else writeFileSync(join(root, path), text)
  }
  process.exitCode = values.check && stale.length > 0 ? 1 : 0
} finally {
  rmSync(declarations, { recursive: true, force: true })
}

function emitDeclarations(outDir: string): void {
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const options = ['--declarationMap', 'false', '--outDir', outDir]
  execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json'), ...options], {
    stdio: 'inherit',
  })
}

/** Every file of api/ that is not as it should be, with the text that it should have; none for one that should not be. */
function staleFiles(texts: ReadonlyMap<string, string>): [path: string, text: string | undefined][] {
  const folder = join(root, 'api')
  mkdirSync(folder, { recursive: true })
  const paths = new Set([...texts.keys(), ...readdirSync(folder).map((file) => `api/${file}`)])
  const isStale = (path: string): boolean =>
    !existsSync(join(root, path)) || readFileSync(join(root, path), 'utf8') !== texts.get(path)
  return [...paths].filter(isStale).map((path) => [path, texts.get(path)])
}

/** The text of each file, by its path. */
function apiTexts(folder: string): Map<string, string> {
  const entries = entriesOf(manifest).map(({ subpath, module }) => ({
    name: manifest.name + subpath.slice(1),
    path: `api/${subpath === '.' ? 'index' : subpath.slice(2).replaceAll('/', '-')}.txt`,
    module: join(folder, `${module}.d.ts`),
  }))
  const modules = new Modules()
  // An entry that exports a name of an earlier one says so, and does not repeat it.
  const homes = new Map<Declared, Home>()
  for (const { name: entry, module } of entries) {
    for (const [name, found] of modules.exportsOf(module)) {
      if (found.tag === 'declared' && !homes.has(found.declared)) homes.set(found.declared, { entry, name })
    }
  }
  return new Map(
    entries.map(({ name, path, module }) => [path, entryText(name, modules.exportsOf(module), homes)]),
  )
}

/** The entry that a declaration belongs to, and its name there. */
interface Home {
  readonly entry: string
  readonly name: string
}

function entryText(
  entry: string,
  exported: ReadonlyMap<string, Found>,
  homes: ReadonlyMap<Declared, Home>,
): string {
  const own: string[] = []
  const imported = new Set<string>()
  const reached = new Set<Declared>()
  const follow = (declared: Declared): void => {
    for (const found of declared.references(homes.has(declared))) {
      if (found.tag === 'foreign') imported.add(importLine(found.name, found.from))
      else {
        const home = homes.get(found.declared)
        if (home !== undefined && home.entry !== entry) imported.add(importLine(home.name, home.entry))
        if (home !== undefined || reached.has(found.declared)) continue
        reached.add(found.declared)
        follow(found.declared)
      }
    }
  }
  for (const name of [...exported.keys()].sort(byName)) {
    const found = exported.get(name) as Found
    const home =
      found.tag === 'declared' ? homes.get(found.declared) : { entry: found.from, name: found.name }
    if (found.tag === 'foreign' || home?.entry !== entry) own.push(exportLine(name, home as Home))
    else if (home.name !== name) own.push(exportLine(name, home))
    else {
      own.push(found.declared.text(true))
      follow(found.declared)
    }
  }
  const inner = [...reached].sort((a, b) => byName(a.name, b.name)).map((declared) => declared.text(false))
  return [
    `// ${entry}: its public names. Written by \`npm run api\`, never by hand.`,
    ...[[...imported].sort(byName).join('\n')].filter((text) => text !== ''),
    ...own,
    ...(inner.length === 0 ? [] : ['// Not exported, but part of the signatures above:', ...inner]),
    '',
  ]
    .join('\n\n')
    .replace(/\n+$/, '\n')
}

function byName(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function importLine(name: string, from: string): string {
  return `import { ${name} } from '${from}'`
}

function exportLine(name: string, { entry, name: original }: Home): string {
  return `export { ${original === name ? name : `${original} as ${name}`} } from '${entry}'`
}
