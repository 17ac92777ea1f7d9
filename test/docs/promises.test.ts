import { existsSync } from 'node:fs'
import { join, normalize } from 'node:path'
import { expect, test } from 'vitest'
import { mutants } from '../faults/mutants.ts'
import { projectFiles, readProjectFile, root } from '../tidy/project.ts'

const PAGE = 'docs/promises.md'
/** `[name]: path "title"` on a line of its own. */
const DEFINITION = /^\[([^\]]+)\]: (\S+) "([^"]+)"$/gm

const page = readProjectFile(PAGE)
const tables = tablesOf(page)
const links = linksOf(page)

test('every link leads to a file that has a test of the title it names', () => {
  expect(links.length).toBeGreaterThan(150)
  expect(links.filter(({ path, title }) => !holds(path, title))).toEqual([])
})

test('a link whose file or title is gone is found', () => {
  const dead = linksOf(
    '[here](../test/docs/gone.test.ts "a title")\n[gone]: ../test/docs/gone.test.ts "a title"\n',
  )
  expect(dead).toEqual(Array(2).fill({ path: 'test/docs/gone.test.ts', title: 'a title' }))
  expect(holds('test/docs/gone.test.ts', 'a title')).toBe(false)
  expect(holds('test/docs/promises.test.ts', `no ${'such'} title`)).toBe(false)
})

test('each name of a link is defined once, and used', () => {
  const used = new Set(Array.from(page.matchAll(/\]\[([^\]]+)\]/g), ([, name = '']) => name))
  const defined = Array.from(page.matchAll(DEFINITION), ([, name = '']) => name)
  expect(defined.toSorted()).toEqual([...used].sort())
})

test('each store has a column in both tables, and in each row a test or the reason why there is none', () => {
  const stores = new Set(projectFiles().map((path) => /^src\/stores\/(\w+)\//.exec(path)?.[1]))
  stores.delete(undefined)
  const byStore = tables.filter(({ header }) => header.includes('memory'))
  expect(byStore).toHaveLength(2)
  for (const { header, rows } of byStore) {
    for (const store of stores) expect(header).toContain(store)
    for (const row of rows) {
      expect(row).toHaveLength(header.length)
      for (const cell of row.slice(1)) expect(cell).toMatch(/^(\[.+\]\[.+\]|– \w+ .+)$/)
    }
  }
})

test('each fault of the table has a planted error, which can be planted, and the file and title of a test', () => {
  const faults = tables.filter(({ header }) => header.includes('memory'))[1]?.rows.map(([name]) => name)
  expect([...new Set(mutants.map(({ fault }) => fault))].sort()).toEqual(faults?.toSorted())
  for (const { edits, test: file, fault } of mutants) {
    expect(existsSync(root + file), fault).toBe(true)
    for (const edit of edits) expect(readProjectFile(edit.file).split(edit.find), fault).toHaveLength(2)
  }
})

test('the ten promises are those of the contract', () => {
  const contract = readProjectFile('src/contract/store.ts')
  const promised = Array.from(contract.matchAll(/^ \* +(\d+)\. /gm), ([, number]) => number)
  expect(promised).toHaveLength(10)
  const named = tables[0]?.rows.flatMap(([name = '']) => /^(\d+)\. /.exec(name)?.[1] ?? [])
  expect(named).toEqual(promised)
})

function holds(path: string, title: string): boolean {
  return existsSync(root + path) && readProjectFile(path).includes(title)
}

function linksOf(markdown: string): { path: string; title: string }[] {
  const defined = Array.from(markdown.matchAll(DEFINITION), ([, , link, title]) => [link, title])
  const written = Array.from(markdown.matchAll(/\]\((\S+) "([^"]+)"\)/g), ([, link, title]) => [link, title])
  return [...defined, ...written].map(([link = '', title = '']) => ({
    path: normalize(join('docs', link)),
    title,
  }))
}

/** Tables as lists of cells. A line of dashes stands between the header and the rows. */
function tablesOf(markdown: string): { header: string[]; rows: string[][] }[] {
  const blocks = markdown.match(/^\|.*\n\|[-|]+\n(\|.*\n?)*/gm) ?? []
  return blocks.map((block) => {
    const [header = [], , ...rows] = block.trim().split('\n').map(cellsOf)
    return { header, rows }
  })
}

function cellsOf(line: string): string[] {
  return line
    .replace(/^\| | \|$/g, '')
    .split(' | ')
    .map((cell) => cell.trim())
}
