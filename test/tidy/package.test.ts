import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { entriesOf, type Manifest } from '../../scripts/entries.ts'
import { projectFiles, readProjectFile, root } from './project.ts'

const manifest = JSON.parse(readProjectFile('package.json')) as {
  name: string
  version: string
  exports: Manifest['exports']
  main: string
  types: string
  typesVersions: { '*': Record<string, string[]> }
  bin: Record<string, string>
  dependencies?: Record<string, string>
  peerDependencies: Record<string, string>
  peerDependenciesMeta: Record<string, { optional?: boolean }>
}
/** The dependencies of entries. Everything else, first of all the core, runs without any other package. */
const BRINGS: Readonly<Record<string, string>> = { xstate: 'src/worker/', croner: 'src/base/ticks.ts' }
/** Entries over one of these. They need its dependency, and do not import it themselves. */
const OVER: readonly string[] = ['src/partition/', 'src/schedule/', 'src/jobs/schedules/']
/** The peers of entries: packages that their users have anyway. */
const NEEDS: Readonly<Record<string, string>> = {
  '@nestjs/common': 'src/nestjs/',
  '@nestjs/core': 'src/nestjs/',
  '@opentelemetry/api': 'src/observe/otel/',
  'prom-client': 'src/observe/prometheus/',
  rxjs: 'src/nestjs/',
}
const entries = entriesOf(manifest)
const names = entries.map(({ subpath }) => manifest.name + subpath.slice(1))
const bareNames = entries
  .filter(
    ({ module }) =>
      ![...Object.values({ ...BRINGS, ...NEEDS }), ...OVER].some((folder) =>
        `src/${module}`.startsWith(folder),
      ),
  )
  .map(({ subpath }) => manifest.name + subpath.slice(1))
const sources = projectFiles().filter((path) => /^src\/.*\.ts$/.test(path))

describe('the package', () => {
  test('exports every index.ts and nothing else', () => {
    const exported = entries.map(({ module }) => `src/${module}.ts`).sort()
    expect(exported).toEqual(sources.filter((path) => path.endsWith('/index.ts')))
  })

  test('has built what it exports and runs', () => {
    const built = entries.flatMap(({ module }) =>
      ['dist', 'dist/cjs'].flatMap((folder) => [`${folder}/${module}.js`, `${folder}/${module}.d.ts`]),
    )
    const missing = [...built, ...Object.values(manifest.bin)].filter((path) => !existsSync(root + path))
    expect(missing).toEqual([])
  })

  test('names the same modules for `import`, for `require`, and for a TypeScript that does not read `exports`', () => {
    const required = entries.map(({ subpath, module }) => [subpath, `./dist/cjs/${module}`] as const)
    for (const [subpath, path] of required) {
      expect(manifest.exports[subpath]).toMatchObject({ require: `${path}.js` })
    }
    const [[, core], ...others] = required as [(typeof required)[number], ...typeof required]
    expect([manifest.main, manifest.types]).toEqual([`${core}.js`, `${core}.d.ts`])
    expect(manifest.typesVersions).toEqual({
      '*': Object.fromEntries(others.map(([subpath, path]) => [subpath.slice(2), [`${path}.d.ts`]])),
    })
  })

  test('can be imported and required by each of its names where no other package is installed', () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-bare-'))
    try {
      cpSync(`${root}dist`, join(folder, 'dist'), { recursive: true })
      cpSync(`${root}package.json`, join(folder, 'package.json'))
      const program = `
        import { createRequire } from 'node:module'
        const require = createRequire(import.meta.url)
        for (const name of ${JSON.stringify(bareNames)}) {
          const imported = Object.keys(await import(name))
          const required = Object.keys(require(name)).filter((key) => key !== '__esModule')
          if (imported.length === 0 || String(imported) !== String(required)) console.log(name, imported, required)
        }
      `
      const args = ['--no-warnings', '--input-type=module', '--eval', program]
      expect(execFileSync(process.execPath, args, { cwd: folder, encoding: 'utf8' })).toBe('')
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('is found in the sources under the same names by the type checker', () => {
    const { compilerOptions } = JSON.parse(readProjectFile('tsconfig.json'))
    const expected = entries.map(({ module }, index) => [names[index], [`./src/${module}.ts`]])
    expect(compilerOptions.paths).toEqual(Object.fromEntries(expected))
  })

  test('depends on nothing but for the worker and the schedule; clients are the user’s own and optional', () => {
    expect(Object.keys(manifest.dependencies ?? {}).sort()).toEqual(Object.keys(BRINGS).sort())
    const elsewhere = sources.filter((path) =>
      Object.entries({ ...BRINGS, ...NEEDS }).some(
        ([name, folder]) => !path.startsWith(folder) && readProjectFile(path).includes(`'${name}'`),
      ),
    )
    expect(elsewhere).toEqual([])
    const optional = Object.entries(manifest.peerDependenciesMeta).filter(
      ([, { optional }]) => optional === true,
    )
    expect(optional.map(([name]) => name)).toEqual(Object.keys(manifest.peerDependencies))
    expect(Object.keys(manifest.peerDependencies)).toEqual(expect.arrayContaining(Object.keys(NEEDS)))
    // A bound would break the installation for everybody who has an older client, also for those who want another store.
    expect([...new Set(Object.values(manifest.peerDependencies))]).toEqual(['*'])
  })

  test('has a lock file of its version', () => {
    const lock = JSON.parse(readProjectFile('package-lock.json'))
    expect([lock.name, lock.version]).toEqual([manifest.name, manifest.version])
    expect(lock.packages[''].peerDependencies).toEqual(manifest.peerDependencies)
  })

  test('has a lock file that names the builds of every platform, without which `npm ci` refuses it', () => {
    // npm leaves out what its registry does not have (yet): choose a version whose builds are all there.
    const { packages } = JSON.parse(readProjectFile('package-lock.json')) as {
      packages: Record<string, Locked>
    }
    const absent = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).filter(
        (name) => !(`${path}/node_modules/${name}` in packages || `node_modules/${name}` in packages),
      ),
    )
    expect(absent).toEqual([])
  })
})

interface Locked {
  readonly optionalDependencies?: Record<string, string>
}
