import { dirname, join, normalize } from 'node:path'
import { describe, expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'

const page = readProjectFile('docs/architecture.md')
const sources = projectFiles().filter((path) => /^src\/.*\.ts$/.test(path))
/** Every other room may import these, so the picture leaves them out. */
const EVERYWHERE = new Set(['base', 'errors.ts'])

describe('the picture of the rooms', () => {
  const boxOf = boxes(page)

  test('has a box for each room, and no other', () => {
    const rooms = new Set(sources.map(roomOf).filter((room) => !EVERYWHERE.has(room)))
    expect([...boxOf.keys()].sort()).toEqual([...rooms].sort())
  })

  test('has the arrows that the import statements have', () => {
    const drawn = page.matchAll(/^ {2}(\w+) --> (\w+)$/gm)
    const imported = importedRooms().map(([from, to]) => [boxOf.get(from), boxOf.get(to)])
    const between = imported.filter(([from, to]) => from !== to).map(([from, to]) => `${from} --> ${to}`)
    expect(Array.from(drawn, ([arrow]) => arrow.trim()).sort()).toEqual([...new Set(between)].sort())
  })

  test('goes one way: no room imports, over whatever others, the room it is imported by', () => {
    const below = new Map<string, Set<string>>()
    for (const [from, to] of importedRooms()) below.set(from, (below.get(from) ?? new Set()).add(to))
    const reach = (room: string, seen: Set<string>): Set<string> => {
      for (const next of below.get(room) ?? []) if (!seen.has(next)) reach(next, seen.add(next))
      return seen
    }
    expect([...below.keys()].filter((room) => reach(room, new Set()).has(room))).toEqual([])
  })
})

test('the table of the rooms has a row for each folder', () => {
  const folders = new Set(sources.flatMap((path) => /^src\/([\w-]+)\//.exec(path)?.[1] ?? []))
  const rows = page.match(/^\| `.*$/gm)?.map((row) => row.split('|')[1] ?? '') ?? []
  const named = rows.flatMap((row) => Array.from(row.matchAll(/`([\w-]+)`/g), ([, name]) => name))
  expect(named.sort()).toEqual([...folders].sort())
})

/** By room, the box that names it: `id["room · room"]`. */
function boxes(markdown: string): Map<string, string> {
  const found = markdown.matchAll(/^ {2}(\w+)\["(.+)"\]$/gm)
  return new Map(
    Array.from(found).flatMap(([, id = '', rooms = '']) =>
      rooms.split(' · ').map((room) => [room, id] as const),
    ),
  )
}

function importedRooms(): [string, string][] {
  const drawn = sources.filter((path) => !EVERYWHERE.has(roomOf(path)))
  return drawn.flatMap((path) => {
    const imports = readProjectFile(path).matchAll(/(?:^|\s)(?:from|import)\s*\(?'(\.[^']+)'/g)
    const rooms = Array.from(imports, ([, link = '']) => roomOf(normalize(join(dirname(path), link))))
    const others = new Set(rooms.filter((room) => room !== roomOf(path) && !EVERYWHERE.has(room)))
    return Array.from(others, (room): [string, string] => [roomOf(path), room])
  })
}

/** A folder of `src`, a folder of `src/stores`, or a file beside them. */
function roomOf(path: string): string {
  const [, first = '', second = ''] = path.split('/')
  return first === 'stores' ? `${first}/${second}` : first
}
