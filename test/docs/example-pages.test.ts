import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'

const examples = projectFiles().filter((path) => /^examples\/.*\.(ts|mjs)$/.test(path))
const pages = projectFiles().filter((path) => /^(README\.md|docs\/.*\.md)$/.test(path))

test('there are examples', () => {
  expect(examples.length).toBeGreaterThan(20)
})

test.each(examples)('%s says in its head what it shows, what it needs and how it is run', (path) => {
  const source = readProjectFile(path)
  const head = /^(?:\/\/ .*\n)+/.exec(source)?.[0].replaceAll(/\n\/\/ +|\n/g, ' ') ?? ''
  const [, needs = '', run] = /^\/\/ .+\. Needs: (.+)\. Run: (.+) $/.exec(head) ?? []
  expect(run).toBe(path.endsWith('.mjs') ? 'node server.mjs 3001' : `npx tsx ${path}`)
  const missing = needsOf(source).filter((what) => !needs.includes(what))
  expect({ needs, missing }).toEqual({ needs, missing: [] })
})

test('every example is linked from a page', () => {
  const links = pages.flatMap((page) =>
    Array.from(readProjectFile(page).matchAll(/\]\(([^)#]+)\)/g), ([, link = '']) =>
      normalize(join(dirname(page), link)),
    ),
  )
  expect(examples.filter((path) => !links.includes(path))).toEqual([])
})

/** The packages that it imports, and the servers whose addresses it reads. */
function needsOf(source: string): string[] {
  const imported = Array.from(
    source.matchAll(/^(?:import|\} from) .*?'([^'.][^']*)'$/gm),
    ([, name = '']) => name,
  )
  const packages = imported.filter((name) => !/^(node:|holdfast)/.test(name))
  const servers = Array.from(source.matchAll(/process\.env\['(\w+_URL)'\]/g), ([, name = '']) => name)
  const needs = [...packages, ...servers]
  return needs.length === 0 ? ['nothing'] : needs
}
