import { lstatSync, realpathSync, type Stats, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError } from '../../errors.ts'

/**
 * The path of the lock file itself, where `path` may be a link. SQLite follows links wherever they lead, and makes files there.
 * In a folder that others may write to, a link of one user could choose where a process of another user writes.
 *
 * @throws {StoreError} `store-refused` for a link of another user, a link to nothing, and a link in the place of a file
 * that SQLite keeps beside the lock file.
 */
export function realLockPath(path: string): string {
  const link = linkAt(path)
  const real = link === undefined ? path : targetOf(path, link)
  for (const suffix of ['-wal', '-shm', '-journal']) {
    const companion = `${real}${suffix}`
    if (linkAt(companion) === undefined) continue
    throw new StoreError(
      'store-refused',
      `Expected ${JSON.stringify(companion)} to be a file of SQLite or no file, got a link. Remove the link.`,
    )
  }
  return real
}

function linkAt(path: string): Stats | undefined {
  try {
    const stats = lstatSync(path)
    return stats.isSymbolicLink() ? stats : undefined
  } catch {
    // Nothing is there, or a folder on the way is missing. Making or opening the file reports what is wrong.
    return undefined
  }
}

function targetOf(path: string, link: Stats): string {
  const file = `the lock file ${JSON.stringify(path)}`
  if (!isTrusted(path, link)) {
    throw new StoreError(
      'store-refused',
      `Expected ${file} to be a file or a link of this user, got the link of another user. Name the file itself.`,
    )
  }
  try {
    return realpathSync(path)
  } catch (cause) {
    throw new StoreError(
      'store-refused',
      `Expected ${file} to be a file or no file yet, got a link to nothing. Remove the link, or name the file itself.`,
      { cause },
    )
  }
}

/** As fs.protected_symlinks of Linux: links of this user, of root, or of the owner of the folder, who could do worse. */
function isTrusted(path: string, link: Stats): boolean {
  if (process.geteuid === undefined) return true
  return [process.geteuid(), 0, statSync(dirname(path)).uid].includes(link.uid)
}
