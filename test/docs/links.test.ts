import { existsSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'
import { projectFiles, readProjectFile, root } from '../tidy/project.ts'

const pages = projectFiles().filter((path) => path.endsWith('.md'))

test('no page links to a file or heading that is not there', () => {
  const dead = pages.flatMap((page) =>
    linksOf(readProjectFile(page))
      .filter((link) => !leadsSomewhere(page, link))
      .map((link) => `${page}: ${link}`),
  )
  expect(dead).toEqual([])
})

test('no page names an npm script that is not there', () => {
  const { scripts } = JSON.parse(readProjectFile('package.json'))
  const named = pages.flatMap((page) =>
    Array.from(readProjectFile(page).matchAll(/\bnpm run ([\w:-]+)/g), ([, script]) => script ?? ''),
  )
  expect(named.filter((script) => scripts[script] === undefined)).toEqual([])
})

test('links are found in every form, and not in code', () => {
  const text = [
    '[a](x.md) and ![b](y.png "title")',
    '[c]: z.md#part',
    '```',
    '[d](not.md)',
    '```',
    '`[e](no.md)`',
  ]
  expect(linksOf(text.join('\n'))).toEqual(['x.md', 'y.png', 'z.md#part'])
  expect(leadsSomewhere('README.md', 'package.json')).toBe(true)
  expect(leadsSomewhere('README.md', 'https://example.org/x')).toBe(true)
  expect(leadsSomewhere('README.md', 'absent.md')).toBe(false)
  expect(leadsSomewhere('CHANGELOG.md', '#unreleased')).toBe(true)
  expect(leadsSomewhere('README.md', 'CHANGELOG.md#absent')).toBe(false)
})

function linksOf(markdown: string): string[] {
  const prose = markdown.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, '')
  return Array.from(
    prose.matchAll(/\]\(\s*([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s*(\S+)/gm),
    ([, inline, reference]) => inline ?? reference ?? '',
  )
}

function leadsSomewhere(page: string, link: string): boolean {
  if (/^[a-z]+:/.test(link)) return true
  const [path = '', heading] = link.split('#')
  const target = path === '' ? page : normalize(join(dirname(page), path))
  if (!existsSync(root + target)) return false
  return heading === undefined || !target.endsWith('.md') || headingsOf(target).includes(heading)
}

/** As GitHub names them: lower case, spaces to dashes, punctuation gone. */
function headingsOf(page: string): string[] {
  const headings = readProjectFile(page).matchAll(/^#+\s+(.*)$/gm)
  return Array.from(headings, ([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replace(/\s/g, '-'),
  )
}
