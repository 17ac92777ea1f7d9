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
  // It would be a folder of that name in the working folder, and so another one for each process that was started elsewhere.
  if (/^~[^/\\]*[/\\]/.test(path)) {
    throw new InvalidArgumentError(
      `Expected \`path\` to be the path of a file, got ${show(path)}. Only a shell knows what ~ is: use the path itself, or homedir() of node:os.`,
    )
  }
  // Absolute, so that a later chdir() changes nothing and SQLite takes no file name for one of its own URIs.
  try {
    return resolve(path)
  } catch {
    throw expected('path', 'absolute, because the working folder is gone', path)
  }
}

/**
 * The lock file of the current user on this machine, for programs that were told of no other: `holdfast/locks.db` in
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
  // The specification wants relative paths to be ignored.
  return stateHome?.startsWith('/') ? stateHome : join(homeFolder(), '.local', 'state')
}

/** With a HOME that is empty or relative, each working folder would have locks of its own. */
function homeFolder(): string {
  for (const ask of [homedir, () => userInfo().homedir]) {
    try {
      const home = ask()
      if (isAbsolute(home)) return home
    } catch {
      // The system knows no user of this number, as in some containers.
    }
  }
  throw new StoreError(
    'store-refused',
    'Expected this user to have a home folder for the lock file, got none. Set HOME, or name a file, as in sqlite:/path/to/locks.db.',
  )
}
