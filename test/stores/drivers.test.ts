import { existsSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { DRIVERS, driverOf } from '../../src/stores/drivers.ts'
import { readProjectFile, root } from '../tidy/project.ts'

test('every store has a driver in the list, and a scheme belongs to one of them', async () => {
  const stores = readdirSync(`${root}src/stores`, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  )
  const list = readProjectFile('src/stores/drivers.ts')
  for (const { name } of stores) {
    expect(existsSync(`${root}src/stores/${name}/driver.ts`), name).toBe(true)
    expect(list).toContain(`import('./${name}/driver.ts')`)
  }
  const schemes = DRIVERS.flatMap((entry) => entry.schemes)
  expect(new Set(schemes).size).toBe(schemes.length)
  for (const { schemes, example, load } of DRIVERS) {
    const { driver } = await load()
    for (const scheme of schemes) expect(await driverOf(scheme)).toBe(driver)
    expect(schemes).toContain(example.slice(0, example.indexOf(':')))
  }
  expect(await driverOf('mongodb')).toBeUndefined()
})

test('the code of a store is loaded with the first URL that names it', () => {
  const loaded = staticImportsOf('src/index.ts')
  expect(loaded).toContain('src/stores/drivers.ts')
  expect([...loaded].filter((path) => /^src\/stores\/.*\//.test(path))).toEqual([])
})

/** All modules that an import of one module loads, as the sources name them. */
function staticImportsOf(path: string, found: Set<string> = new Set()): ReadonlySet<string> {
  if (found.has(path)) return found
  found.add(path)
  const imports = readProjectFile(path).matchAll(/^(?:import|export) (?!type\b)[^;]*?from '(\.[^']+)'/gm)
  for (const [, target = ''] of imports) staticImportsOf(join(dirname(path), target), found)
  return found
}
