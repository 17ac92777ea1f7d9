import { posix } from 'node:path'
import { expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'
import { readProjectFile } from '../tidy/project.ts'

// A command starts quickly if it loads little. So the test follows the imports that are evaluated at the start.

/** `import … from` and `export … from`, but neither `import type` nor `import()`. */
const IMPORT = /^(?:import|export) (?!type\b)[^'(]*?from '(\.[^']*\.ts)'$/gm

function loadedWith(...paths: readonly string[]): ReadonlySet<string> {
  const loaded = new Set(paths)
  for (const path of loaded) {
    for (const [, specifier = ''] of readProjectFile(path).matchAll(IMPORT)) {
      loaded.add(posix.join(posix.dirname(path), specifier))
    }
  }
  return loaded
}

test('the parser, the help and the descriptions of all commands load no locks and no store', () => {
  const others = [...loadedWith('src/cli/main.ts')].filter((path) => !/^src\/(cli|base)\//.test(path))
  expect(others.sort()).toEqual(['src/errors.ts', 'src/stores/drivers.ts'])
})

test('run starts its guardian before it loads locks and a store', () => {
  const others = [...loadedWith('src/cli/run/run.ts')].filter((path) => !/^src\/(cli|base)\//.test(path))
  expect(others.sort()).toEqual(['src/errors.ts', 'src/stores/drivers.ts'])
})

test('a command loads the code of no other command', () => {
  const source = readProjectFile('src/cli/commands.ts')
  const modules = Array.from(source.matchAll(/import\('\.\/([^']*)'\)/g), ([, path]) => `src/cli/${path}`)
  expect(modules).toHaveLength(COMMANDS.length)
  for (const module of modules) {
    const loaded = loadedWith(module)
    expect(modules.filter((other) => other !== module && loaded.has(other))).toEqual([])
  }
})

test('run, acquire and wait load neither jobs nor the dashboard', () => {
  const modules = ['run/run.ts', 'run/taking.ts', 'lease/acquire.ts', 'rooms/wait.ts'].map(
    (path) => `src/cli/${path}`,
  )
  const loaded = [...loadedWith(...modules)]
  expect(loaded).toContain('src/primitives/locks.ts')
  expect(loaded.filter((path) => /^src\/(jobs|postgres|dashboard|stores\/\w+)\//.test(path))).toEqual([])
})
