import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'

const PAGE = 'docs/glossary.md'
const entries = readProjectFile(PAGE).match(/^\| \*\*.*$/gm) ?? []
const words = entries.map((entry) => /\*\*(.+)\*\*/.exec(entry)?.[1] ?? '')

test('the words are in order, each once', () => {
  expect(words.length).toBeGreaterThan(30)
  expect(words).toEqual([...new Set(words)].sort())
})

test('each word is used in the sources or on another page', () => {
  const used = projectFiles().filter(
    (path) => /^(src\/.*\.(ts|lua|sql)|docs\/.*\.md)$/.test(path) && path !== PAGE,
  )
  const text = used.map(readProjectFile).join('\n')
  // As words, and as a name in code: renewal loop, renewalLoop, RenewalLoop, renewal-loop.
  const isUsed = (word: string) => new RegExp(`\\b${word.replaceAll(' ', '[ -]?')}`, 'i').test(text)
  expect(words.filter((word) => !isUsed(word))).toEqual([])
  expect(isUsed(`not ${'a word'} of this house`)).toBe(false)
})
