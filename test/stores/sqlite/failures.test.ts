import { execFileSync } from 'node:child_process'
import { mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { toStoreError } from '../../../src/stores/sqlite/failures.ts'
import { openSqlite } from '../../../src/stores/sqlite/index.ts'
import { freshFolder } from './lock-folder.ts'

const folder = freshFolder()

test.each(['missing', 'there'])(
  'without a free file descriptor, a file that is %s is used later',
  async (kind) => {
    const path = join(folder, kind, 'locks.db')
    if (kind === 'there') await (await openSqlite(path)).close()
    const script = new URL('processes/open-without-descriptors.ts', import.meta.url).pathname
    const command = 'ulimit -n 200; exec "$0" --import tsx "$@"'
    const output = execFileSync('bash', ['-c', command, process.execPath, script, path], { encoding: 'utf8' })
    const errors = JSON.parse(output) as unknown[]
    expect(errors.length).toBeGreaterThan(1)
    for (const error of errors)
      expect(error).toEqual({
        code: 'store-unavailable',
        message: `The lock file "${path}" cannot be opened now, although this user may write it. If this process has no file descriptor left, close files or raise its limit (ulimit -n).`,
      })
  },
)

test('a path that is too long for SQLite is refused, and the longest one is used', async () => {
  const start = join(folder, 'd'.repeat(200), 'd'.repeat(200), '/')
  const [longest, longer] = [504, 505].map((length) => start + 'f'.repeat(length - start.length))
  await (await openSqlite(longest ?? '')).close()
  await expect(openSqlite(longer ?? '')).rejects.toMatchObject({
    code: 'store-refused',
    message: `The lock file "${longer}" cannot be opened, because its path is too long for SQLite. Name a file whose path has at most 504 bytes.`,
  })
})

test('a file that is deleted between two looks at it is unavailable, and one behind a file is refused', () => {
  const path = join(folder, 'file')
  writeFileSync(path, '')
  expect(errorOf(join(folder, 'gone.db'))).toMatchObject({ code: 'store-unavailable' })
  expect(errorOf(join(path, 'locks.db'))).toMatchObject({ code: 'store-refused' })
})

test('a folder in the place of the lock file is refused', async () => {
  const path = join(folder, 'taken')
  mkdirSync(path)
  await expect(openSqlite(path)).rejects.toMatchObject({ code: 'store-refused' })
})

function errorOf(path: string): unknown {
  try {
    return statSync(path)
  } catch (error) {
    return toStoreError(error, path)
  }
}
