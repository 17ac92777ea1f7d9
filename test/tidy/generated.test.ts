import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
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

  test('puts the parts of a script in their places, and those of a variant in front of those of its base', async () => {
    const write = (path: string, text: string): void => {
      mkdirSync(join(source, 'stores', dirname(path)), { recursive: true })
      writeFileSync(join(source, 'stores', path), text)
    }
    write('x/lua/acquire.lua', 'local a\n--@ room\n--@@ vote\nreturn a\n')
    write('x/lua/parts/room.lua', 'local room\n--@ wake\n')
    write('x/lua/parts/wake.lua', 'local wake\n')
    write('z/lua/variant.json', '{ "base": "../../x/lua" }')
    write('z/lua/claim.lua', '--@ wake\n')
    write('z/lua/parts/wake.lua', 'local other\n')
    write('z/lua/parts/vote.lua', 'local vote\n')
    expect(generate(source)).toEqual({ status: 0, stderr: '' })
    const { scripts: base } = await import(join(source, 'stores/x/lua/scripts.generated.ts'))
    expect(base.acquire).toBe('local a\nlocal room\nlocal wake\n\n\nreturn a\n')
    expect(Object.keys(base)).toEqual(['acquire', 'readOnly'])
    const { scripts: variant } = await import(join(source, 'stores/z/lua/scripts.generated.ts'))
    expect(variant.acquire).toBe('local a\nlocal room\nlocal other\n\n\nlocal vote\n\nreturn a\n')
    expect(Object.keys(variant)).toEqual(['claim', 'acquire', 'readOnly'])
  })

  test('refuses a script that includes a part which is not there', () => {
    writeFileSync(join(source, 'stores/x/lua/acquire.lua'), '--@ room\n')
    expect(generate(source)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('acquire.lua includes room, and there is no such part'),
    })
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
