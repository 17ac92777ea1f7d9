import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { comparison } from '../../compare/comparison.ts'
import { faults } from '../../compare/faults.ts'
import { libraries } from '../../compare/libraries.ts'
import type { Library } from '../../compare/library.ts'
import { pageOf } from '../../compare/page.ts'

describe('the comparison with other libraries', () => {
  // What is expected names times, which a busy machine may miss once.
  const often = { retry: 2 }
  it.concurrent.each(faults)('Holdfast does what is expected at $id', often, async (fault) => {
    const rows = await comparison({ faults: [fault], libraries: libraries.filter(isOurs) }, () => {})
    expect(rows.filter(({ seen }) => seen?.isKept !== true)).toEqual([])
    expect(rows.length).toBeGreaterThan(0)
  })

  it('is printed as JSON', async () => {
    const args = ['--only', 'process-ends', '--library', 'async-lock', '--json']
    const { code, stdout } = await compare(args)
    const [only] = JSON.parse(stdout) as unknown[]
    expect(only).toMatchObject({ library: { name: 'async-lock' }, seen: { isKept: true } })
    expect(code).toBe(0)
  })

  it('counts a key that stays locked for ever as a promise that was not kept', async () => {
    const stale = faults.find(({ id }) => id === 'stale-release')
    const client = { acquire: async () => null }
    const stage = { kind: 'redis', proxies: [], open: async () => client, openAside: async () => client }
    expect(await stale?.run(stage as never)).toMatchObject({ isKept: false })
  })

  it('shows every fault, every package and every sign on its page', () => {
    const [fault] = faults
    const [library] = libraries
    if (fault === undefined || library === undefined) throw new Error('There is nothing to compare.')
    const page = pageOf([
      { fault, library, seen: { isKept: true, what: 'a | b' } },
      { fault, library, seen: { isKept: false, what: '<b>' } },
      { fault, library, seen: undefined },
    ])
    expect(page).toContain(`| [${fault.title}](#a-reply-is-lost) | ✓ ✗ – |`)
    expect(page).toContain('a \\| b')
    expect(page).toContain('&lt;b>')
  })

  it('its page in the repository has every fault and every package', () => {
    const page = readFileSync('docs/compare.md', 'utf8')
    for (const { title } of faults) expect(page).toContain(`\n## ${title}\n`)
    for (const { name } of libraries)
      expect(page).toContain(`[${name}](https://www.npmjs.com/package/${name})`)
  })

  it('says what it expects of its options', async () => {
    expect(await compare(['--only', 'war'])).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/^Expected --only to be one of lost-reply, .*, got war\.\n$/),
    })
    expect((await compare(['--library', 'left-pad'])).stderr).toMatch(
      /^Expected --library to be one of holdfast, /,
    )
  })
})

function isOurs({ name }: Library): boolean {
  return name === 'holdfast'
}

function compare(args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, ['--import', 'tsx', 'compare/run.ts', ...args], (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr })
    })
  })
}
