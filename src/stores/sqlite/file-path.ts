import { homedir, userInfo } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { expected } from '../../base/arguments.ts'
import { show } from '../../base/duration.ts'
import { InvalidArgumentError, StoreError } from '../../errors.ts'

/** @throws {InvalidArgumentError} unless it is the path of a file, which need not exist yet. */
export function parsePath(path: unknown): string {
  if (typeof path !== 'string' || path === '' || path.includes('\0')) {
    throw expected('path', 'the path of a file', path)
  }
  if (path === ':memory:') {
    throw new InvalidArgumentError(
      'Expected `path` to be the path of a file, got ":memory:". For locks inside one process use memoryStore() or `memory:`.',
    )
  }
  if (/^[a-z][a-z+]+:/i.test(path)) {
    throw new InvalidArgumentError(`Expected \`path\` to be a plain path, got the URL ${show(path)}.`)
  }
  // It would be a folder of that name in the working folder, so processes in different folders would not share it.
  if (/^~[^/\\]*[/\\]/.test(path)) {
    throw new InvalidArgumentError(
      `Expected \`path\` to be the path of a file, got ${show(path)}. Only a shell knows what ~ is: use the path itself, or homedir() of node:os.`,
    )
  }
  // Absolute, so that a later chdir() changes nothing, and SQLite takes no path for one of its URIs.
  try {
    return resolve(path)
  } catch {
    throw expected('path', 'absolute, because the working folder is gone', path)
  }
}

/**
 * The lock file of the current user on this machine, for programs that name no other: `holdfast/locks.db` in
 * `$XDG_STATE_HOME` or `~/.local/state` (Linux), `~/Library/Application Support` (macOS), `%LOCALAPPDATA%` (Windows).
 *
 * @throws {StoreError} `store-refused` when the user has no home folder.
 */
export function defaultSqlitePath(): string {
  return join(stateFolder(), 'holdfast', 'locks.db')
}

function stateFolder(): string {
  const { XDG_STATE_HOME: stateHome, LOCALAPPDATA: localAppData } = process.env
  if (process.platform === 'darwin') return join(homeFolder(), 'Library', 'Application Support')
  if (process.platform === 'win32') return localAppData || join(homeFolder(), 'AppData', 'Local')
  // The specification says to ignore relative paths.
  return stateHome?.startsWith('/') ? stateHome : join(homeFolder(), '.local', 'state')
}

/** Ignores a HOME that is empty or relative: each working folder would have locks of its own. */
function homeFolder(): string {
  for (const ask of [homedir, () => userInfo().homedir]) {
    try {
      const home = ask()
      if (isAbsolute(home)) return home
    } catch {
      // The system knows no user with this id, as in some containers.
    }
  }
  throw new StoreError(
    'store-refused',
    'Expected this user to have a home folder for the lock file, got none. Set HOME, or name a file, as in sqlite:/path/to/locks.db.',
  )
}
