// Builds dist: the package as ES modules, in dist/cjs once more for `require`, and the types of both. Code that several
// entries need is in chunks, so that no entry loads what it does not use, and a process has each class once. It keeps its names
// and comments, so it is read and debugged as it is, and only the types have maps. The command is apart, in few files of CommonJS:
// Node.js needs a third of the time to load those.
//
//   npm run build
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CodeSplittingGroup, type OutputOptions, type Plugin, rolldown } from 'rolldown'
import { bundleDeclarations } from './bundle-declarations.ts'
import { entriesOf, manifestOf } from './entries.ts'

// Ctrl-C ends it without a message. What an `exit` listener undoes is undone then, too.
for (const [signal, code] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const])
  process.once(signal, () => process.exit(code))

const root = fileURLToPath(new URL('..', import.meta.url))
const entries = entriesOf(manifestOf(root)).map(({ module }) => module)

/**
 * A client that may be absent is imported in a `try`. Jest runs no import() in CommonJS without a flag, and `require` has to
 * stand in the `try` itself for a bundler to see it.
 */
const requireClients: Plugin = {
  name: 'require-clients',
  transform: (code) => code.replace(/\bawait import\('([^.'][^']*)'\)/g, "require('$1')"),
}

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

/** The chunk of the small modules that most entries need, in place of one file for each. */
const NEEDED_BY_MOST: CodeSplittingGroup[] = [
  { name: 'base', test: /\/src\/((base|contract|law)\/.*|errors)\.ts$/, minShareCount: 4 },
]

rmSync(join(root, 'dist'), { recursive: true, force: true })
const inTree = Object.fromEntries(entries.map((module) => [module, module]))
const library = { codeSplitting: { groups: NEEDED_BY_MOST } }
await bundle(inTree, { ...library, dir: 'dist', format: 'esm' })
await bundle(inTree, { ...library, dir: 'dist/cjs', format: 'cjs' })
// Without comments: nobody reads it, and Node.js reads all of it for each call of the command.
const command = { dir: 'dist/cli', format: 'cjs', comments: false } as const
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
await declare(['dist', 'dist/cjs'])

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
    ...output,
  })
}

/** The path of the module that a chunk is called after, as a name: there are many a `driver.ts`. */
function chunkName(name: string, moduleIds: readonly string[]): string {
  const own = moduleIds.findLast((id) => basename(id, '.ts') === name)
  return own === undefined ? name : relative(join(root, 'src'), own).replace(/\.ts$/, '').replaceAll('/', '-')
}

async function declare(folders: readonly string[]): Promise<void> {
  const emitted = mkdtempSync(join(tmpdir(), 'holdfast-declarations-'))
  // An interrupted compiler may still be at work in the folder for a moment.
  process.once('exit', () => rmSync(emitted, { recursive: true, force: true, maxRetries: 10 }))
  await compile(['-p', 'tsconfig.build.json', '--outDir', emitted])
  for (const { path, text, map } of bundleDeclarations(emitted, entries)) {
    const mapPath = join(root, 'dist', `${path}.map`)
    for (const folder of folders) {
      const target = join(root, folder, path)
      mkdirSync(dirname(target), { recursive: true })
      // The same text in each folder, so one map is enough.
      const link = map === undefined ? '' : `//# sourceMappingURL=${relative(dirname(target), mapPath)}\n`
      writeFileSync(target, text + link)
    }
    if (map !== undefined) writeFileSync(mapPath, map)
  }
}

/**
 * Runs the compiler, whose messages are shown. Ends the build if it fails. It gets a process group of its own where there are
 * any: otherwise Ctrl-C would end the compiler under its wrapper, which then prints a stack.
 */
async function compile(options: readonly string[]): Promise<void> {
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const hasGroups = process.platform !== 'win32'
  const compiler = spawn(process.execPath, [tsc, ...options], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    detached: hasGroups,
  })
  const { pid } = compiler
  const end = () => {
    if (pid !== undefined && hasGroups) process.kill(-pid, 'SIGKILL')
    else compiler.kill()
  }
  // Before the folder of the compiler is removed.
  process.prependOnceListener('exit', end)
  const [code] = await once(compiler, 'exit')
  process.removeListener('exit', end)
  if (code !== 0) process.exit(code ?? 1)
}
