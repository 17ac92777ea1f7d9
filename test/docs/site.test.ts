import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, normalize } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isTooWide, startBrowser } from '../dashboard/browser.ts'
import { projectFiles, readProjectFile, root } from '../tidy/project.ts'

let folder: string
let files: readonly string[]
const texts = new Map<string, string>()

/** Half a minute, and many times that on a busy machine. */
const SLOWEST_BUILD_MS = 600_000

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-site-'))
  const build = ['--import', 'tsx', 'scripts/docs/build.ts', folder]
  const { status, stdout, stderr } = spawnSync(process.execPath, build, { cwd: root, encoding: 'utf8' })
  // It ends with 0 only if every link of the docstrings leads somewhere, and every public name has a docstring.
  expect({ status, said: status === 0 ? '' : stdout + stderr }).toEqual({ status: 0, said: '' })
  files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  for (const file of files.filter((path) => /\.(html|svg)$/.test(path))) {
    texts.set(file, readFileSync(join(folder, file), 'utf8'))
  }
}, SLOWEST_BUILD_MS)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('has each page of the repository, and each public name under the path that it is imported by', () => {
  const pages = projectFiles().filter((path) =>
    /^(docs\/.*|bench\/RESULTS|CHANGELOG|CONTRIBUTING|SECURITY)\.md$/.test(path),
  )
  expect(pages.length).toBeGreaterThan(30)
  expect(pages.filter((path) => !texts.has(path.replace(/\.md$/, '.html')))).toEqual([])
  const names = projectFiles()
    .filter((path) => path.startsWith('api/'))
    .flatMap((path) => {
      const api = readProjectFile(path)
      const entry = /^\/\/ (\S+):/.exec(api)?.[1] ?? ''
      const own = api.split('// Not exported')[0] ?? ''
      const declared = own.matchAll(/^(?:class|interface|type|function|const) (\w+)/gm)
      return Array.from(declared, ([, name]) => `${entry}/${name}.html`)
    })
  expect(names.length).toBeGreaterThan(150)
  // Two names that differ only in case cannot have the same file name everywhere: `currentLock-1.html`.
  const isThere = (path: string): boolean => texts.has(path) || texts.has(path.replace('.html', '-1.html'))
  expect(names.filter((path) => !isThere(path))).toEqual([])
})

describe('the links', () => {
  test('lead to a file and a place in it, on every page', () => {
    const dead = [...texts].flatMap(([page, html]) =>
      linksOf(html)
        .filter((link) => !leadsSomewhere(page, link))
        .map((link) => `${page}: ${link}`),
    )
    expect(dead.slice(0, 20)).toEqual([])
  })

  test('are found, and missed where they lead nowhere', () => {
    expect(linksOf('<a href="x.html#a&amp;b"><img src="y.svg">')).toEqual(['x.html#a&b', 'y.svg'])
    expect(leadsSomewhere('docs/redis.html', 'postgres.html#what-it-promises')).toBe(true)
    expect(leadsSomewhere('docs/redis.html', 'postgres.html#absent')).toBe(false)
    expect(leadsSomewhere('docs/redis.html', 'absent.html')).toBe(false)
  })

  test('to sources lead to the line of a page of the site', () => {
    const definition = /<a href="\.\.\/(source\/src\/connect\.ts\.html#L\d+)"/.exec(
      texts.get('holdfast/connect.html') ?? '',
    )
    expect(definition).not.toBeNull()
    expect(leadsSomewhere('index.html', definition?.[1] ?? 'absent')).toBe(true)
    expect(texts.get('docs/concepts.html')).toContain('href="../source/src/law/room.ts.html"')
  })
})

test('code is highlighted, and what a page declares out of sight is not shown', () => {
  expect(texts.get('index.html')).toMatch(/<span class="hl-\d+">import<\/span>/)
  expect([...texts].filter(([, html]) => html.includes('<!-- ts')).map(([page]) => page)).toEqual([])
})

test('every diagram is a picture', () => {
  expect(texts.get('docs/architecture.html')).toContain('<figure class="diagram">')
  expect(texts.get('docs/worker.html')).toContain('<figure class="diagram">')
  expect(texts.get('docs/concepts.html')).toMatch(/<img src="\.\.\/media\/[\w-]+\.svg"/)
  expect([...texts.values()].filter((html) => html.includes('class="mermaid"'))).toEqual([])
})

describe('opened from its folder', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await startBrowser()
  })
  afterAll(() => browser.close())

  const phone = { viewport: { width: 390, height: 844 } }

  test.each<[string, BrowserContextOptions]>([
    ['light', { colorScheme: 'light' }],
    ['dark', { colorScheme: 'dark' }],
    ['on a phone', { colorScheme: 'dark', ...phone }],
  ])('%s: finds a page and a public name by search, and asks nothing of any server', async (_, options) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
    try {
      const page = await context.newPage()
      const wrongs = noteWrongs(page)
      await page.goto(pathToFileURL(join(folder, 'index.html')).href)
      for (const [query, expected] of [
        ['fence', 'docs/guard.html'],
        ['tombstone', 'docs/glossary.html'],
        ['createLocks', 'holdfast/createLocks.html'],
      ] as const) {
        await page.locator('#tsd-search-trigger').click()
        await page.locator('#tsd-search-input').fill(query)
        await page.locator(`#tsd-search-results a[href$="${expected}"]`).waitFor()
        await page.keyboard.press('Escape')
      }
      expect(wrongs).toEqual([])
    } finally {
      await context.close()
    }
  })

  test('fits on a phone', async () => {
    const context = await browser.newContext(phone)
    try {
      const page = await context.newPage()
      for (const path of ['index.html', 'docs/redis.html', 'docs/worker.html', 'holdfast/Locks.html']) {
        await page.goto(pathToFileURL(join(folder, path)).href)
        expect({ path, isTooWide: await isTooWide(page) }).toEqual({ path, isTooWide: false })
      }
    } finally {
      await context.close()
    }
  })
})

/** Errors, and requests for anything outside of the folder. */
function noteWrongs(page: Page): readonly string[] {
  const wrongs: string[] = []
  page.on('pageerror', (error) => wrongs.push(error.message))
  page.on('console', (message) => {
    // From a folder Chromium refuses one SVG to use another. TypeDoc puts its icons into the page itself then.
    if (message.type() === 'error' && !message.text().includes('assets/icons.svg'))
      wrongs.push(message.text())
  })
  page.on('request', (request) => {
    if (!/^(file|data|blob):/.test(request.url())) wrongs.push(request.url())
  })
  return wrongs
}

function linksOf(html: string): string[] {
  const attributes = html.matchAll(/ (?:href|src)="([^"]*)"/g)
  return Array.from(attributes, ([, link = '']) => unescaped(link))
}

function leadsSomewhere(page: string, link: string): boolean {
  if (/^(https?|mailto|data):/.test(link)) return true
  const [path = '', anchor = ''] = link.split('#').map(decodeURIComponent)
  const target = path === '' ? page : normalize(join(dirname(page), path.replace(/\?.*/, '')))
  if (anchor === '') return statSync(join(folder, target), { throwIfNoEntry: false })?.isFile() === true
  return idsOf(target).has(anchor)
}

const ids = new Map<string, ReadonlySet<string>>()

function idsOf(page: string): ReadonlySet<string> {
  const known = ids.get(page)
  if (known !== undefined) return known
  const found = new Set(
    Array.from((texts.get(page) ?? '').matchAll(/ id="([^"]*)"/g), ([, id = '']) => unescaped(id)),
  )
  ids.set(page, found)
  return found
}

function unescaped(text: string): string {
  return text
    .replaceAll('&quot;', '"')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
}
