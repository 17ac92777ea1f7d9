import {
  accessSync,
  constants,
  readFileSync,
  realpathSync,
  type StatsFs,
  statfsSync,
  statSync,
} from 'node:fs'
import { dirname } from 'node:path'
import type { Finding } from '../../base/diagnosis.ts'
import { parsePath } from './file-path.ts'
import { fileSystemOf } from './file-system.ts'
import { hasEngine, openDatabase } from './sqlite-engine.ts'

/** Findings about a lock file that the store itself does not make. */
export function diagnoseSqlite(path: string): readonly Finding[] {
  const file = parsePath(path)
  // The store has said that it cannot be used here. Good findings about the file do not help then.
  if (!hasEngine()) return []
  return CHECKS.flatMap((check) => {
    try {
      return check(file) ?? []
    } catch {
      // A file that cannot be read cannot be used either. The store has said so.
      return []
    }
  })
}

const CHECKS: readonly ((file: string) => Finding | undefined)[] = [
  fileSystem,
  journal,
  permissions,
  companions,
  space,
  clock,
]

function fileSystem(file: string): Finding | undefined {
  const check = 'file system'
  const mounts = process.platform === 'linux' ? readFileSync('/proc/self/mountinfo', 'utf8') : ''
  const type = fileSystemOf(realpathSync(file), mounts)
  if (type === undefined) return undefined
  if (type === 'overlay') {
    return {
      check,
      verdict: 'warning',
      text: 'The file lies in a container, where no process outside of it sees these locks. Share its folder with the others, as a volume.',
    }
  }
  return { check, verdict: 'ok', text: `The file lies on ${type}, a disk of this machine.` }
}

/** SQLite itself is asked. To close the file without it would drop the file locks of a store in this process. */
function journal(file: string): Finding | undefined {
  const check = 'journal'
  accessSync(file)
  const database = openDatabase(file, undefined)
  try {
    const { journal_mode } = database.prepare('PRAGMA journal_mode').get() as {
      readonly journal_mode: string
    }
    if (journal_mode === 'wal') return { check, verdict: 'ok', text: 'The file has a write-ahead log.' }
  } finally {
    database.close()
  }
  return {
    check,
    verdict: 'warning',
    text: 'The file has no write-ahead log, so each lock waits for the disk. End the program that has changed that, and let the store open it again.',
  }
}

function permissions(file: string): Finding {
  const check = 'permissions'
  accessSync(dirname(file), constants.W_OK | constants.X_OK)
  const everybody = (statSync(file).mode & 0o002) !== 0
  if (!everybody) return { check, verdict: 'ok', text: 'The file and its folder can be written to.' }
  return {
    check,
    verdict: 'warning',
    text: 'Every user of this machine may write to the file, and so take any lock. Remove that right: chmod o-w.',
  }
}

/** SQLite keeps two files beside the lock file. A container that shares the lock file alone has two others. */
function companions(file: string): Finding | undefined {
  if (process.platform !== 'linux') return undefined
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
  if (!mounts.split('\n').some((line) => line.split(' ')[4] === realpathSync(file))) return undefined
  return {
    check: 'sharing',
    verdict: 'problem',
    text: 'The file is shared with this container without its folder, so the files that SQLite keeps beside it are not the same for all. Share the folder.',
  }
}

function space(file: string): Finding {
  return roomOn(statfsSync(file))
}

/** Some file systems do not limit the number of files. */
export function roomOn({
  bavail,
  bsize,
  files,
  ffree,
}: Pick<StatsFs, 'bavail' | 'bsize' | 'files' | 'ffree'>): Finding {
  const check = 'space'
  const megabytes = Math.floor((bavail * bsize) / 1_000_000)
  if (files > 0 && ffree === 0) {
    return {
      check,
      verdict: 'problem',
      text: 'The disk takes no more files, and nobody gets a lock. Remove some.',
    }
  }
  if (megabytes >= LEAST_MEGABYTES) return { check, verdict: 'ok', text: 'The disk has room.' }
  return {
    check,
    verdict: megabytes === 0 ? 'problem' : 'warning',
    text: `The disk has ${megabytes} MB left, and nobody gets a lock when it is full. Make room on it.`,
  }
}

const LEAST_MEGABYTES = 100

function clock(): Finding {
  return { check: 'clock', verdict: 'ok', text: 'All who use the file have the clock of this machine.' }
}
