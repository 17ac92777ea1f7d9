import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EmptyProject, emptyProject, packTarball } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
let project: EmptyProject
let folder: string
let files: readonly string[]
beforeAll(() => {
  tarball = packTarball()
  project = emptyProject(tarball.path)
  folder = join(project.folder, 'node_modules/holdfast')
  files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
})
afterAll(() => {
  project[Symbol.dispose]()
  tarball[Symbol.dispose]()
})

function read(file: string): string {
  return readFileSync(join(folder, file), 'utf8')
}

test('every map leads to sources that are in the package', () => {
  const maps = files.filter((file) => file.endsWith('.map'))
  const missing = maps.flatMap((map) => {
    const { sources } = JSON.parse(read(map)) as { sources: string[] }
    const own = sources.filter((source) => !source.includes('node_modules') && !source.startsWith('\0'))
    return own.filter((source) => !existsSync(join(folder, dirname(map), source)))
  })
  expect(missing).toEqual([])
  expect(maps.length).toBeGreaterThan(5)
})

test('every declaration has the other declarations that it names', () => {
  const broken = files
    .filter((file) => file.endsWith('.d.ts'))
    .flatMap((file) =>
      [...read(file).matchAll(/ from '(\.[^']*)\.js';$/gm)]
        .map(([, path = '']) => `${normalize(join(dirname(file), path))}.d.ts`)
        .filter((path) => !existsSync(join(folder, path)))
        .map((path) => `${file}: ${path}`),
    )
  expect(broken).toEqual([])
})

test('every link of its pages leads into the package, but for those to tests, Lua and rules', () => {
  const pages = files.filter((file) => file.endsWith('.md'))
  const broken = pages.flatMap((page) =>
    [...read(page).matchAll(/\]\(([^)#\s:]+)(?:#[^)]*)?\)|^\[[^\]]+\]: ([^#\s:]+)/gm)]
      .map(([, target = '', named = target]) => normalize(join(dirname(page), named)))
      // These are in the repository alone.
      .filter((path) => !/^test\/|\.lua$|^biome\.json$/.test(path) && !existsSync(join(folder, path)))
      .map((path) => `${page}: ${path}`),
  )
  expect(broken).toEqual([])
  expect(pages.length).toBeGreaterThan(30)
})

test('it can be found by keywords, and holds no more files than it needs', () => {
  expect(JSON.parse(read('package.json')).keywords).toContain('distributed-lock')
  expect(files.filter((file) => /\.(lua|sql|css)$|^src\/cli/.test(file))).toEqual([])
  // A declaration for each module, twice and with its map, made more than 1,800 of them, and maps of the code 1,011.
  expect(files.filter((file) => statSync(join(folder, file)).isFile()).length).toBeLessThan(1000)
})
