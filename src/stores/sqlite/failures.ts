import { accessSync, constants, existsSync, realpathSync, statSync } from 'node:fs'
import { messageOf } from '../../base/thrown.ts'
import { StoreError } from '../../errors.ts'
import { nearestFolder } from './create-file.ts'

/**
 * Whether another connection has the file's write lock, is recovering the file, or was faster to delete the log that a deleted lock
 * file left beside a new one.
 */
export function isBusy(error: unknown): boolean {
  const code = primaryCode(error)
  return code === BUSY || code === LOCKED || code === PROTOCOL || extendedCode(error) === NOTHING_TO_DELETE
}

/** Whether a table does not take a row, as a number that is none. */
export function isConstraint(error: unknown): boolean {
  return primaryCode(error) === CONSTRAINT
}

/** The error that a caller gets for a failure of SQLite or the file system. Other errors are bugs, and pass as they are. */
export function toStoreError(error: unknown, path: string): unknown {
  const code = primaryCode(error)
  const file = JSON.stringify(path)
  const cause = error
  if (code === undefined) {
    if (!isSystemError(error)) return error
    const refusal = PASSING.includes(error.code) ? 'store-unavailable' : 'store-refused'
    return new StoreError(refusal, `The lock file ${file} cannot be reached: ${error.message}.`, { cause })
  }
  switch (code) {
    case NOT_A_DATABASE:
      return new StoreError(
        'store-refused',
        `Expected ${file} to be an SQLite database, got another kind of file.`,
        {
          cause,
        },
      )
    case CORRUPT:
      return new StoreError(
        'store-refused',
        `The lock file ${file} is damaged. Stop the processes that use it and delete it with its -wal and -shm; nothing but held locks is lost.`,
        { cause },
      )
    case READ_ONLY:
    case PERMISSION:
      return notWritable(path, cause)
    case CANNOT_OPEN:
      return notOpened(path, cause)
    case FULL:
      return new StoreError('store-unavailable', `The lock file ${file} cannot grow: its disk is full.`, {
        cause,
      })
    case IO_ERROR:
      return new StoreError(
        'store-unavailable',
        `The lock file ${file} cannot be read or written: ${messageOf(error)}. Check that its disk works and is not full.`,
        { cause },
      )
    default:
      return new StoreError(
        'store-unavailable',
        `The lock file ${file} cannot be used now: ${messageOf(error)}.`,
        { cause },
      )
  }
}

/** SQLite's primary result code; `undefined` for errors that are not SQLite's. */
function primaryCode(error: unknown): number | undefined {
  const code = extendedCode(error)
  if (code !== undefined) return code & 0xff
  return error instanceof Error && 'code' in error && error.code === 'ERR_SQLITE_ERROR'
    ? codeOfText(error.message)
    : undefined
}

/** Of `node:sqlite` and of the package. */
function extendedCode(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined
  const { sqliteExtendedCode, errcode } = error as Error & Readonly<Record<string, unknown>>
  const code = sqliteExtendedCode ?? errcode
  return typeof code === 'number' ? code : undefined
}

/** Deno's errors of `exec` and of opening a file have SQLite's text and no code. */
function codeOfText(message: string): number {
  return TEXTS.find(([, text]) => message.startsWith(text))?.[0] ?? GENERIC
}

function isSystemError(error: unknown): error is Error & { readonly code: string } {
  return error instanceof Error && 'syscall' in error
}

function notWritable(path: string, cause: unknown): StoreError {
  return new StoreError(
    'store-refused',
    `The lock file ${JSON.stringify(path)} cannot be written. Give this user write permission for the file and its folder.`,
    { cause },
  )
}

/** @throws if a right is missing, or if the file was deleted meanwhile. */
function mayWrite(file: string): boolean {
  if (existsSync(file)) {
    accessSync(file, constants.R_OK | constants.W_OK)
    return !statSync(file).isDirectory()
  }
  accessSync(nearestFolder(file), constants.W_OK | constants.X_OK)
  return true
}

/** SQLite has one code for a file without rights, a path that is too long, and a process without a free file descriptor. */
function notOpened(path: string, cause: unknown): StoreError {
  // On Windows a program cannot ask for its rights in this way.
  if (process.platform === 'win32') return notWritable(path, cause)
  const file = JSON.stringify(path)
  try {
    const real = existsSync(path) ? realpathSync(path) : path
    if (Buffer.byteLength(real) > LONGEST_PATH)
      return new StoreError(
        'store-refused',
        `The lock file ${file} cannot be opened, because its path is too long for SQLite. Name a file whose path has at most ${LONGEST_PATH} bytes.`,
        { cause },
      )
    for (const each of [real, `${real}-wal`, `${real}-shm`])
      if (!mayWrite(each)) return notWritable(path, cause)
  } catch (error) {
    // Another process may have deleted one of the files just now.
    if (!isSystemError(error) || !PASSING.includes(error.code)) return notWritable(path, cause)
  }
  return new StoreError(
    'store-unavailable',
    `The lock file ${file} cannot be opened now, although this user may write it. If this process has no file descriptor left, close files or raise its limit (ulimit -n).`,
    { cause },
  )
}

/** The file was deleted between two looks at it, or the process or the machine has no file descriptor left. */
const PASSING = ['ENOENT', 'EMFILE', 'ENFILE']

// https://sqlite.org/rescode.html
const GENERIC = 1
const PERMISSION = 3
const BUSY = 5
const LOCKED = 6
const READ_ONLY = 8
const IO_ERROR = 10
const CORRUPT = 11
const FULL = 13
const CANNOT_OPEN = 14
const PROTOCOL = 15
const CONSTRAINT = 19
const NOT_A_DATABASE = 26
/** In bytes, measured: SQLite keeps room for the suffix of another file in its 512. */
const LONGEST_PATH = 504
const NOTHING_TO_DELETE = IO_ERROR | (23 << 8)

/** What SQLite says for a code (`sqlite3_errstr`). Its further codes fall under the generic one here. */
const TEXTS: readonly (readonly [code: number, text: string])[] = [
  [PERMISSION, 'access permission denied'],
  [BUSY, 'database is locked'],
  [LOCKED, 'database table is locked'],
  [READ_ONLY, 'attempt to write a readonly database'],
  [IO_ERROR, 'disk I/O error'],
  [CORRUPT, 'database disk image is malformed'],
  [FULL, 'database or disk is full'],
  [CANNOT_OPEN, 'unable to open database file'],
  [PROTOCOL, 'locking protocol'],
  [NOT_A_DATABASE, 'file is not a database'],
]
