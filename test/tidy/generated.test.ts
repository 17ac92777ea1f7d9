import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { root } from './project.ts'

test('every Lua and SQL script and every file of a page is in the module generated from it', () => {
  expect(generate('--check')).toEqual({ status: 0, stderr: '' })
})

describe('the generator', () => {
  let source: string
  beforeEach(() => {
    source = mkdtempSync(join(tmpdir(), 'holdfast-generate-'))
    mkdirSync(join(source, 'stores/x/lua'), { recursive: true })
    mkdirSync(join(source, 'stores/y/sql'), { recursive: true })
    writeFileSync(join(source, 'stores/x/lua/acquire.lua'), awkward)
    writeFileSync(join(source, 'stores/x/lua/read-only.lua'), 'return 1\n')
    writeFileSync(join(source, 'stores/y/sql/acquire.sql'), 'select $1, $$x$$;\n')
    mkdirSync(join(source, 'z/page'), { recursive: true })
    for (const name of ['index.html', 'read-only.js', 'notes.md'])
      writeFileSync(join(source, 'z/page', name), `${name}: ${awkward}`)
  })
  afterEach(() => rmSync(source, { recursive: true, force: true }))

  const awkward = `-- \${KEYS} \`tick\` \\ \\n\nreturn string.format('%s\\0', "x")\n`

  test('keeps each script to the letter, under the name of its file', async () => {
    expect(generate(source).status).toBe(0)
    const lua = await import(join(source, 'stores/x/lua/scripts.generated.ts'))
    const sql = await import(join(source, 'stores/y/sql/scripts.generated.ts'))
    expect(lua.scripts).toEqual({ acquire: awkward, readOnly: 'return 1\n' })
    expect(sql.scripts).toEqual({ acquire: 'select $1, $$x$$;\n' })
    const page = await import(join(source, 'z/page/files.generated.ts'))
    expect(page.files).toEqual({
      'index.html': `index.html: ${awkward}`,
      'read-only.js': `read-only.js: ${awkward}`,
    })
    expect(generate('--check', source)).toEqual({ status: 0, stderr: '' })
  })

  test('notices a script that changed, and writes nothing when it only checks', () => {
    const module = join(source, 'stores/x/lua/scripts.generated.ts')
    expect(generate('--check', source)).toMatchObject({ status: 1, stderr: expect.stringContaining(module) })
    expect(existsSync(module)).toBe(false)
    generate(source)
    appendFileSync(join(source, 'stores/x/lua/acquire.lua'), '-- changed\n')
    expect(generate('--check', source)).toMatchObject({ status: 1, stderr: expect.stringContaining(module) })
  })

  test('removes a module whose scripts are gone', () => {
    generate(source)
    rmSync(join(source, 'stores/y/sql/acquire.sql'))
    expect(generate('--check', source).status).toBe(1)
    expect(generate(source).status).toBe(0)
    expect(existsSync(join(source, 'stores/y/sql/scripts.generated.ts'))).toBe(false)
  })
})

function generate(...args: string[]): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', 'tsx', 'scripts/generate.ts', ...args],
    {
      cwd: root,
      encoding: 'utf8',
    },
  )
  return { status, stderr }
}
