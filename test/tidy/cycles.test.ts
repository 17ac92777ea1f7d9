import { posix } from 'node:path'
import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from './project.ts'

// The linter finds circles of imports, but leaves out `import type`. A circle of types also says that none of its files can
// be understood without the others.

const IMPORT = /(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']*\.ts)'/g

function importsOf(path: string, source: string): string[] {
  return [...source.matchAll(IMPORT)].map(([, specifier]) =>
    posix.join(posix.dirname(path), specifier as string),
  )
}

/** Groups of two or more files that reach one another, and files that import themselves. By Tarjan's algorithm. */
function circlesOf(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const circles: string[][] = []
  const numbers = new Map<string, number>()
  const stack: string[] = []
  const visit = (path: string): number => {
    const number = numbers.size
    numbers.set(path, number)
    stack.push(path)
    let lowest = number
    for (const imported of imports.get(path) ?? []) {
      if (!numbers.has(imported)) lowest = Math.min(lowest, visit(imported))
      else if (stack.includes(imported)) lowest = Math.min(lowest, numbers.get(imported) as number)
    }
    if (lowest < number) return lowest
    const group = stack.splice(stack.indexOf(path))
    if (group.length > 1 || imports.get(path)?.includes(path)) circles.push(group.sort())
    return number
  }
  for (const path of imports.keys()) if (!numbers.has(path)) visit(path)
  return circles.sort()
}

test('no files import one another in a circle, not even for types', () => {
  const sources = projectFiles().filter((path) => path.startsWith('src/') && path.endsWith('.ts'))
  const imports = new Map(sources.map((path) => [path, importsOf(path, readProjectFile(path))]))
  expect([...imports.values()].flat().length).toBeGreaterThan(1000)
  expect([...imports.values()].flat().filter((path) => !imports.has(path))).toEqual([])
  expect(circlesOf(imports)).toEqual([])
})

test('a circle is found by a type, a re-export, a side effect and an import()', () => {
  const sources = {
    'src/a.ts': `import type { B } from './room/b.ts'\nimport { readFile } from 'node:fs'`,
    'src/room/b.ts': `export { c } from '../c.ts'`,
    'src/c.ts': `import './d.ts'`,
    'src/d.ts': `const a = await import('./a.ts')\nimport { e } from './e.ts'`,
    'src/e.ts': `import {\n  type F,\n} from './f.ts'`,
    'src/f.ts': `export const f = 1`,
  }
  const imports = new Map(Object.entries(sources).map(([path, source]) => [path, importsOf(path, source)]))
  expect(circlesOf(imports)).toEqual([['src/a.ts', 'src/c.ts', 'src/d.ts', 'src/room/b.ts']])
})
