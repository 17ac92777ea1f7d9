import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { diagnose } from '../../../src/index.ts'
import { diagnoseSqlite, roomOn } from '../../../src/stores/sqlite/doctor.ts'
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
  // Its journal is not what is wrong with it.
  expect(judged.findings.map(({ check }) => check)).not.toContain('journal')
})
