import { existsSync, statSync } from 'node:fs'
import { readOnlyStore } from '../../base/read-only.ts'
import type { Store } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { defaultSqlitePath, parsePath } from './file-path.ts'
import { openSqlite, sqliteStore } from './open.ts'

/**
 * A lock file for those who only look. To open a file that is not there would make it, with its folders and tables.
 *
 * @throws {StoreError} `store-refused` when there is no file, or an empty one. The default file of the user need not be there: the
 * first lock makes it, so before that no key is held.
 */
export async function lookAtSqlite(path: string): Promise<Store> {
  const file = parsePath(path)
  const isThere = (): boolean => {
    if (isWritten(file)) return true
    if (isDefault(file)) return false
    const name = JSON.stringify(file)
    const found = existsSync(file) ? `The lock file ${name} is empty` : `There is no lock file at ${name}`
    throw new StoreError(
      'store-refused',
      `${found}. Check the path; the first process that takes a lock there writes the file.`,
    )
  }
  const store = isThere() ? await openSqlite(file) : sqliteStore(file)
  return {
    ...readOnlyStore(store),
    inspect: (request) => (isThere() ? store.inspect(request) : { rooms: [], next: undefined }),
  }
}

/** Also of a folder in its place, and of a file that cannot be looked at: the store refuses these in its own words. */
function isWritten(file: string): boolean {
  try {
    const there = statSync(file, { throwIfNoEntry: false })
    return there !== undefined && (there.size > 0 || !there.isFile())
  } catch {
    return true
  }
}

function isDefault(file: string): boolean {
  try {
    return file === defaultSqlitePath()
  } catch {
    // This user has no home folder.
    return false
  }
}
