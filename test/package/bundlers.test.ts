import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EmptyProject, emptyProject, packTarball, toolFolder } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
let project: EmptyProject
beforeAll(() => {
  tarball = packTarball()
  // No client is installed, so a bundler has to leave every import() of one as it is.
  project = emptyProject(tarball.path, ['@photostructure/sqlite', 'vite'])
  for (const [name, program] of Object.entries(PROGRAMS)) project.write(`${name}.mjs`, program)
})
afterAll(() => {
  project[Symbol.dispose]()
  tarball[Symbol.dispose]()
})

const PROGRAMS = {
  memory: `
    import { createLocks } from 'holdfast'
    import { memoryStore } from 'holdfast/memory'
    const locks = createLocks(memoryStore())
    locks.withLock('k', ({ fence }) => console.log('held', fence > 0n)).then(() => locks.close())
  `,
  // In CommonJS there is no await at the top.
  sqlite: `
    import { connect, isHoldfastError } from 'holdfast'
    async function main() {
      const locks = await connect('sqlite:./locks.db')
      await locks.withLock('k', ({ fence }) => console.log('held', fence > 0n))
      await locks.close()
      const error = await connect('redis://localhost').catch((error) => error)
      console.log(isHoldfastError(error, 'invalid-argument'), error.message)
    }
    main()
  `,
}

const SAYS = {
  memory: 'held true\n',
  sqlite:
    'held true\ntrue Expected the package `ioredis` or `redis` to be installed, got neither. Add one of them: `npm install ioredis`.\n',
}

/** Programs in one line that bundle a file, as their documentation shows first, into the other one. */
const BUNDLERS: Readonly<Record<string, (from: string, to: string) => Promise<string>>> = {
  esbuild: (from, to) => esbuild(from, to),
  'esbuild as ES module': (from, to) => esbuild(from, to, '--format=esm'),
  rollup: (from, to) =>
    script(`
      import { nodeResolve } from ${url('@rollup/plugin-node-resolve/dist/es/index.js')}
      import { rollup } from ${url('rollup/dist/es/rollup.js')}
      const bundle = await rollup({ input: '${from}', external: /^node:/, plugins: [nodeResolve()], onLog() {} })
      await bundle.write({ file: '${to}', format: 'es', inlineDynamicImports: true })
    `),
  webpack: (from, to) =>
    script(`
      import webpack from ${url('webpack/lib/index.js')}
      const [, folder, filename] = /(.*)\\/(.*)/.exec('${to}')
      const output = { path: folder, filename, module: true, chunkFormat: 'module' }
      const options = { mode: 'production', target: 'node20', entry: '${from}', output, experiments: { outputModule: true } }
      webpack(options, (error, stats) => {
        if (error || stats.hasErrors()) console.log(error ?? stats.toString({ all: false, errors: true }))
      })
    `),
  vite: (from, to) =>
    script(`
      import { build } from 'vite'
      const [, outDir, name] = /(.*)\\/(.*)/.exec('${to}')
      await build({
        logLevel: 'error',
        ssr: { noExternal: true },
        build: { ssr: '${from}', outDir, emptyOutDir: false, rolldownOptions: { output: { entryFileNames: name } } },
      })
    `),
}

function esbuild(from: string, to: string, ...options: readonly string[]): Promise<string> {
  const tool = `${toolFolder('esbuild')}/bin/esbuild`
  return project.run(tool, [
    from,
    '--bundle',
    '--platform=node',
    '--log-level=warning',
    `--outfile=${to}`,
    ...options,
  ])
}

function script(program: string): Promise<string> {
  return project.run(process.execPath, ['--input-type=module', '--eval', program])
}

function url(path: string): string {
  const [name = ''] = /^@[^/]+\/[^/]+|^[^/]+/.exec(path) ?? []
  return JSON.stringify(pathToFileURL(toolFolder(name) + path.slice(name.length)).href)
}

test.each(
  Object.keys(BUNDLERS).flatMap((bundler) =>
    Object.keys(PROGRAMS).map((program) => [bundler, program as keyof typeof PROGRAMS] as const),
  ),
)('%s bundles a program over %s, and the result runs', async (bundler, program) => {
  const name = `out/${bundler.replaceAll(' ', '-')}/${program}.${bundler === 'esbuild' ? 'cjs' : 'mjs'}`
  const to = `${project.folder}/${name}`
  expect(await BUNDLERS[bundler]?.(`${project.folder}/${program}.mjs`, to)).toBe('')
  expect(await project.run(process.execPath, [to])).toBe(SAYS[program])
})

test('esbuild bundles what requires the package', async () => {
  const from = project.write(
    'required.cjs',
    PROGRAMS.sqlite.replace(/import (.*) from '(.*)'/, "const $1 = require('$2')"),
  )
  const to = `${project.folder}/out/required.cjs`
  expect(await esbuild(from, to)).toBe('')
  expect(await project.run(process.execPath, [to])).toBe(SAYS.sqlite)
})
