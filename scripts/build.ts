// Builds dist: the package as ES modules, in dist/cjs once more for `require`, and the types of both. Code that several
// entries need is in chunks, so that no entry loads what it does not use, and a process has each class once. The command is
// apart, in few files of CommonJS: Node.js needs a third of the time to load those.
//
//   npm run build
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CodeSplittingGroup, type OutputOptions, type Plugin, rolldown } from 'rolldown'
import { entriesOf, manifestOf } from './entries.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const entries = entriesOf(manifestOf(root)).map(({ module }) => module)

/**
 * A client that may be absent is imported in a `try`. Jest runs no import() in CommonJS without a flag, and `require` has to
 * stand in the `try` itself for a bundler to see it.
 */
const requireClients: Plugin = {
  name: 'require-clients',
  transform: (code) => ({
    code: code.replace(/\bawait import\('([^.'][^']*)'\)/g, "require('$1')"),
    // No line is added, so that of the compiler remains.
    map: null,
  }),
}

/** The end of an import from another declaration, up to its extension. Examples in comments have no semicolon. */
const IMPORT = /( from '\.[^']*)\.ts';$/gm

/** What a project has that names neither a library of the language nor types, as by the defaults of TypeScript 7. */
const NEEDED = [
  {
    by: /\bAsyncDisposable\b|\bSymbol\.asyncDispose\b/,
    reference: '/// <reference lib="esnext.disposable" />',
  },
  { by: /\bBuffer\b|\bNodeJS\.|from 'node:/, reference: '/// <reference types="node" />' },
]

/** The chunks of the command, each with all that its modules import: what every command starts with, and locks in SQLite. */
const LOADED_TOGETHER: CodeSplittingGroup[] = [
  {
    name: (id, context) =>
      context.getModuleInfo(join(root, 'src/cli/main.ts'))?.importedIds.includes(id) === true
        ? 'start'
        : null,
    debugName: 'start',
    priority: 2,
  },
  { name: 'core', test: /\/src\/(cli\/run\/(run|taking)|stores\/sqlite\/driver)\.ts$/, priority: 1 },
]

interface DeclarationMap {
  readonly mappings: string
}

rmSync(join(root, 'dist'), { recursive: true, force: true })
const inTree = Object.fromEntries(entries.map((module) => [module, module]))
await bundle(inTree, { dir: 'dist', format: 'esm', sourcemap: true })
await bundle(inTree, { dir: 'dist/cjs', format: 'cjs', sourcemap: true })
const command = { dir: 'dist/cli', format: 'cjs' } as const
const programs = {
  main: 'cli/main',
  'worker-process': 'cli/demo/worker-process',
  'torture-process': 'cli/torture/worker-process',
}
await bundle(programs, { ...command, codeSplitting: { groups: LOADED_TOGETHER } })
await bundle({ 'guardian-process': 'cli/run/guardian-process' }, { ...command, codeSplitting: false })
for (const folder of ['dist/cjs', 'dist/cli']) {
  writeFileSync(join(root, folder, 'package.json'), '{ "type": "commonjs" }\n')
}
declare(['dist', 'dist/cjs'])

async function bundle(modules: Readonly<Record<string, string>>, output: OutputOptions): Promise<void> {
  const bundled = await rolldown({
    cwd: root,
    input: Object.fromEntries(Object.entries(modules).map(([name, module]) => [name, `src/${module}.ts`])),
    platform: 'node',
    // Every other package and node: itself, but not what `await using` becomes.
    external: /^(?!@oxc-project\/)[^./\0]/,
    transform: { target: 'es2023' },
    treeshake: { moduleSideEffects: false },
    plugins: output.format === 'cjs' ? [requireClients] : [],
    onLog(_, { message }) {
      throw new Error(message)
    },
  })
  await bundled.write({
    entryFileNames: '[name].js',
    chunkFileNames: ({ name, moduleIds }) => `chunks/${chunkName(name, moduleIds)}.js`,
    exports: 'named',
    minifyInternalExports: false,
    sourcemapExcludeSources: true,
    ...output,
  })
}

/** The path of the module that a chunk is called after, as a name: there are many a `driver.ts`. */
function chunkName(name: string, moduleIds: readonly string[]): string {
  const own = moduleIds.findLast((id) => basename(id, '.ts') === name)
  return own === undefined ? name : relative(join(root, 'src'), own).replace(/\.ts$/, '').replaceAll('/', '-')
}

/** Writes the declarations that an entry leads to. The map of each leads to its source, which the package contains. */
function declare(folders: readonly string[]): void {
  const emitted = mkdtempSync(join(tmpdir(), 'holdfast-declarations-'))
  try {
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const options = ['-p', 'tsconfig.build.json', '--outDir', emitted]
    execFileSync(process.execPath, [tsc, ...options], { cwd: root, stdio: 'inherit' })
    for (const module of reachable(emitted)) {
      const text = readFileSync(join(emitted, `${module}.d.ts`), 'utf8')
      const map = JSON.parse(readFileSync(join(emitted, `${module}.d.ts.map`), 'utf8')) as DeclarationMap
      const needed = NEEDED.filter(({ by }) => by.test(text.replace(/\/\*.*?\*\//gs, ''))).map(
        ({ reference }) => `${reference}\n`,
      )
      for (const folder of folders) {
        const path = join(root, folder, `${module}.d.ts`)
        mkdirSync(dirname(path), { recursive: true })
        writeFileSync(path, needed.join('') + text.replace(IMPORT, "$1.js';"))
        const sources = [relative(dirname(path), join(root, 'src', `${module}.ts`))]
        // A semicolon stands for a line.
        const mappings = ';'.repeat(needed.length) + map.mappings
        writeFileSync(`${path}.map`, JSON.stringify({ ...map, sources, mappings }))
      }
    }
  } finally {
    rmSync(emitted, { recursive: true, force: true })
  }
}

function reachable(emitted: string): ReadonlySet<string> {
  const found = new Set<string>(entries)
  for (const module of found) {
    const text = readFileSync(join(emitted, `${module}.d.ts`), 'utf8')
    for (const [, path = ''] of text.matchAll(IMPORT)) {
      found.add(join(dirname(module), path.slice(path.lastIndexOf("'") + 1)))
    }
  }
  return found
}
