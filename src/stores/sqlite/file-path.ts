import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { InvalidArgumentError } from '../../errors.ts'

/** @throws {InvalidArgumentError} unless it is the path of a file, which need not exist yet. */
export function parsePath(path: unknown): string {
  if (typeof path !== 'string' || path === '' || path.includes('\0')) {
    throw new InvalidArgumentError(`Expected \`path\` to be the path of a file, got ${show(path)}.`)
  }
  if (path === ':memory:') {
    throw new InvalidArgumentError(
      'Expected `path` to be the path of a file, got ":memory:". For locks inside one process use memoryStore() or `memory:`.',
    )
  }
  if (/^[a-z][a-z+]+:/i.test(path)) {
    throw new InvalidArgumentError(`Expected \`path\` to be a plain path, got the URL ${show(path)}.`)
  }
  // Absolute, so that a later chdir() changes nothing and SQLite takes no file name for one of its own URIs.
  return resolve(path)
}

/**
 * The lock file of the current user on this machine, for programs that were told of no other: `holdfast/locks.db` in
 * `$XDG_STATE_HOME` or `~/.local/state` (Linux), `~/Library/Application Support` (macOS), `%LOCALAPPDATA%` (Windows).
 */
export function defaultSqlitePath(): string {
  return join(stateFolder(), 'holdfast', 'locks.db')
}

function stateFolder(): string {
  const home = homedir()
  const { XDG_STATE_HOME: stateHome, LOCALAPPDATA: localAppData } = process.env
  if (process.platform === 'darwin') return join(home, 'Library', 'Application Support')
  if (process.platform === 'win32') return localAppData || join(home, 'AppData', 'Local')
  // The specification wants relative paths to be ignored.
  return stateHome?.startsWith('/') ? stateHome : join(home, '.local', 'state')
}

function show(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : `${value === null ? 'null' : typeof value}`
}
