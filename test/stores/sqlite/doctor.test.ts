import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createLocks, diagnose } from '../../../src/index.ts'
import { diagnoseSqlite, roomOn } from '../../../src/stores/sqlite/doctor.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { openDatabase } from '../../../src/stores/sqlite/sqlite-engine.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-doctor-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

test('the doctor finds nothing wrong with a lock file on a disk', async () => {
  const { store, verdict, findings } = await diagnose(`sqlite:${join(folder, 'locks.db')}`)
  expect({ store, verdict }).toEqual({ store: 'sqlite', verdict: 'ok' })
  const checks = [
    ...['connection', 'round trip', 'messages', 'listing'],
    ...['file system', 'journal', 'permissions', 'space', 'clock'],
  ]
  expect(findings.map(({ check }) => check)).toEqual(
    process.platform === 'linux' ? checks : checks.filter((check) => check !== 'file system'),
  )
})

test('the doctor drops no file lock of a store in this process', async () => {
  const path = join(folder, 'locks.db')
  await using locks = createLocks(await openSqlite({ path }))
  await locks.acquire('key')
  // Only Linux lists them.
  const isListed = process.platform === 'linux'
  const fileLocks = () => {
    const own = `:${statSync(path).ino} `
    return (isListed ? readFileSync('/proc/locks', 'utf8') : '')
      .split('\n')
      .filter((line) => line.includes(` ${process.pid} `) && line.includes(own))
      .map((line) => line.replace(/^\d+/, ''))
  }
  const before = fileLocks()
  expect(before.length > 0).toBe(isListed)
  diagnoseSqlite(path)
  expect(fileLocks()).toEqual(before)
})

test('without any SQLite the doctor finds nothing fine about a file that cannot be used', async () => {
  openDatabase(join(folder, 'locks.db'), undefined).close()
  // A copy of the sources, beside which no package is installed.
  cpSync(new URL('../../../src', import.meta.url), join(folder, 'src'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const script = `
    process.getBuiltinModule = () => undefined
    const { diagnose } = await import(${JSON.stringify(join(folder, 'src/index.ts'))})
    const { findings } = await diagnose(${JSON.stringify(`sqlite:${join(folder, 'locks.db')}`)})
    console.log(findings.map(({ check, verdict, text }) => [verdict, check, text].join(' ')).join('\\n'))`
  const output = execFileSync(
    process.execPath,
    ['--import', 'tsx', '--input-type=module', '--eval', script],
    { encoding: 'utf8' },
  )
  expect(output).toMatch(/^problem connection The sqlite store needs [^\n]*\n$/)
})

test('the doctor tells of a file that everybody may write to, and of one without a write-ahead log', async () => {
  const path = join(folder, 'locks.db')
  const database = openDatabase(path, undefined)
  database.exec('PRAGMA journal_mode = DELETE; CREATE TABLE some (thing)')
  database.close()
  chmodSync(path, 0o666)
  expect(diagnoseSqlite(path)).toEqual(
    expect.arrayContaining([
      { check: 'journal', verdict: 'warning', text: expect.stringContaining('no write-ahead log') },
      { check: 'permissions', verdict: 'warning', text: expect.stringContaining('chmod o-w') },
    ]),
  )
})

test.each([
  [{ bavail: 50_000, bsize: 4096, files: 100, ffree: 10 }, 'ok', 'has room'],
  [{ bavail: 50_000, bsize: 4096, files: 0, ffree: 0 }, 'ok', 'has room'],
  [{ bavail: 1000, bsize: 4096, files: 100, ffree: 10 }, 'warning', '4 MB left'],
  [{ bavail: 0, bsize: 4096, files: 100, ffree: 10 }, 'problem', '0 MB left'],
  [{ bavail: 50_000, bsize: 4096, files: 100, ffree: 0 }, 'problem', 'no more files'],
])('the doctor says of a disk with %o that it is %s', (disk, verdict, text) => {
  expect(roomOn(disk)).toEqual({ check: 'space', verdict, text: expect.stringContaining(text) })
})

test('the doctor says why a file cannot be used', async () => {
  const { verdict, findings } = await diagnose(`sqlite:${folder}`)
  expect(verdict).toBe('problem')
  expect(findings[0]).toMatchObject({ check: 'connection', text: expect.stringContaining('got a folder') })
  const other = join(folder, 'letter.txt')
  writeFileSync(other, 'Dear Sir or Madam, this is no database.')
  const judged = await diagnose(`sqlite:${other}`)
  expect(judged.findings[0]).toMatchObject({
    ...{ check: 'connection', verdict: 'problem' },
    text: expect.stringContaining('got another kind of file'),
  })
  // The journal is not the reason why this file cannot be used.
  expect(judged.findings.map(({ check }) => check)).not.toContain('journal')
})
