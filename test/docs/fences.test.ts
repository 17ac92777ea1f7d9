import { describe, expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'
import { typeErrorsInFences } from './fences.ts'

const readPage = (path: string) => ({ path, text: readProjectFile(path) })

test('every ts snippet of the documentation compiles', () => {
  const pages = projectFiles().filter((path) => /^(README\.md|CONTRIBUTING\.md|docs\/.*\.md)$/.test(path))
  expect(pages).toContain('README.md')
  expect(typeErrorsInFences(pages.map(readPage))).toEqual([])
})

test('every example in a docstring compiles', () => {
  const sources = projectFiles().filter((path) => /^src\/.*\.ts$/.test(path))
  expect(typeErrorsInFences(sources.map(readPage))).toEqual([])
})

describe('the checker of snippets', () => {
  test('names the page and the line of an error, and leaves what is right alone', () => {
    const text = [
      '# Title',
      '```ts',
      "import { readFileSync } from 'node:fs'",
      "const text: string = readFileSync('x', 'utf8')",
      '```',
      '```sh',
      'not: ts',
      '```',
      '```ts',
      'const wrong: number = "text"',
      'await absent()',
      '```',
    ].join('\n')
    expect(typeErrorsInFences([{ path: 'docs/a.md', text }])).toEqual([
      expect.stringMatching(/^docs\/a\.md:10 TS2322/),
      expect.stringMatching(/^docs\/a\.md:11 TS2304/),
    ])
  })

  test('knows a function that a page declares out of sight, and the reader’s own files', () => {
    const text = [
      '```ts',
      'export const pay = "not declared yet"',
      '```',
      '<!-- ts',
      'declare function pay(amount: number): Promise<void>',
      '-->',
      '```ts',
      "import { amount } from './my-order.js'",
      'await pay(amount)',
      '```',
    ].join('\n')
    expect(typeErrorsInFences([{ path: 'a.md', text }])).toEqual([])
  })

  test('knows what an earlier snippet of the page has shown, and no later one', () => {
    const text = [
      '```ts',
      'console.log(orders)',
      '```',
      '```ts',
      "import { type Stats, statSync } from 'node:fs'",
      'export interface Order { amount: number }',
      'const { orders, more: [first] } = { orders: [] as Order[], more: [1] }',
      '```',
      '```ts',
      'const { size }: Stats = statSync("x")',
      'const order: Order = { amount: size + (first ?? 0) }',
      'console.log(orders, order)',
      '```',
    ].join('\n')
    expect(typeErrorsInFences([{ path: 'a.md', text }])).toEqual([expect.stringMatching(/^a\.md:2 TS2304/)])
  })

  test('refuses to hide what a reader would miss', () => {
    const text = [
      '<!-- ts',
      "import { connect } from 'holdfast'",
      "declare const locks: import('holdfast').Locks",
      'declare const server: { close(): void }',
      "declare function open(): import('holdfast').Locks",
      'declare function pay(',
      '  amount: number,',
      '): Promise<void>',
      '-->',
      '```ts',
      'await pay(1)',
      '```',
    ].join('\n')
    expect(typeErrorsInFences([{ path: 'a.md', text }])).toEqual([
      "a.md:2 hides from its reader: import { connect } from 'holdfast'",
      "a.md:3 hides from its reader: declare const locks: import('holdfast').Locks",
      'a.md:4 hides from its reader: declare const server: { close(): void }',
      "a.md:5 hides from its reader: declare function open(): import('holdfast').Locks",
    ])
  })

  test('reads the comments of a source file', () => {
    const text = ['/**', ' * ```ts', ' * const n: number = ""', ' * ```', ' */'].join('\n')
    expect(typeErrorsInFences([{ path: 'src/a.ts', text }])).toEqual([
      expect.stringMatching(/^src\/a\.ts:3 TS2322/),
    ])
  })
})
