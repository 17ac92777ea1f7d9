import { dirname, join, normalize } from 'node:path'
import { describe, expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'

const page = readProjectFile('docs/architecture.md')
const sources = projectFiles().filter((path) => /^src\/.*\.ts$/.test(path))
/** Every other folder may import these, so the picture leaves them out. */
const EVERYWHERE = new Set(['base', 'errors.ts'])

describe('the picture of the folders', () => {
  const boxOf = boxes(page)

  test('has a box for each folder, and no other', () => {
    const folders = new Set(sources.map(folderOf).filter((folder) => !EVERYWHERE.has(folder)))
    expect([...boxOf.keys()].sort()).toEqual([...folders].sort())
  })

  test('has the arrows that the import statements have', () => {
    const drawn = page.matchAll(/^ {2}(\w+) --> (\w+)$/gm)
    const imported = importedFolders().map(([from, to]) => [boxOf.get(from), boxOf.get(to)])
    const between = imported.filter(([from, to]) => from !== to).map(([from, to]) => `${from} --> ${to}`)
    expect(Array.from(drawn, ([arrow]) => arrow.trim()).sort()).toEqual([...new Set(between)].sort())
  })

  test('goes one way: no folder imports, over whatever others, the folder it is imported by', () => {
    const below = new Map<string, Set<string>>()
    for (const [from, to] of importedFolders()) below.set(from, (below.get(from) ?? new Set()).add(to))
    const reach = (folder: string, seen: Set<string>): Set<string> => {
      for (const next of below.get(folder) ?? []) if (!seen.has(next)) reach(next, seen.add(next))
      return seen
    }
    expect([...below.keys()].filter((folder) => reach(folder, new Set()).has(folder))).toEqual([])
  })
})

test('the table of the folders has a row for each', () => {
  const folders = new Set(sources.flatMap((path) => /^src\/([\w-]+)\//.exec(path)?.[1] ?? []))
  const rows = page.match(/^\| `.*$/gm)?.map((row) => row.split('|')[1] ?? '') ?? []
  const named = rows.flatMap((row) => Array.from(row.matchAll(/`([\w-]+)`/g), ([, name]) => name))
  expect(named.sort()).toEqual([...folders].sort())
})

/** The box that names each folder: `id["folder · folder"]`. */
function boxes(markdown: string): Map<string, string> {
  const found = markdown.matchAll(/^ {2}(\w+)\["(.+)"\]$/gm)
  return new Map(
    Array.from(found).flatMap(([, id = '', folders = '']) =>
      folders.split(' · ').map((folder) => [folder, id] as const),
    ),
  )
}

function importedFolders(): [string, string][] {
  const drawn = sources.filter((path) => !EVERYWHERE.has(folderOf(path)))
  return drawn.flatMap((path) => {
    const imports = readProjectFile(path).matchAll(/(?:^|\s)(?:from|import)\s*\(?'(\.[^']+)'/g)
    const folders = Array.from(imports, ([, link = '']) => folderOf(normalize(join(dirname(path), link))))
    const others = new Set(folders.filter((folder) => folder !== folderOf(path) && !EVERYWHERE.has(folder)))
    return Array.from(others, (folder): [string, string] => [folderOf(path), folder])
  })
}

/** A folder of `src`, a folder of `src/stores`, or a file beside them. */
function folderOf(path: string): string {
  const [, first = '', second = ''] = path.split('/')
  return first === 'stores' ? `${first}/${second}` : first
}
