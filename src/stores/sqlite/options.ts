import { checkOptions, expected } from '../../base/arguments.ts'
import type { StoreTime } from '../../law/room.ts'
import { parsePath } from './file-path.ts'
import type { LockFileOptions } from './lock-file.ts'
import { bootOfMachine, machineTime } from './machine.ts'
import type { SqliteEngine } from './sqlite-engine.ts'

/** Which file holds the locks. */
export interface SqliteStoreOptions {
  /** The lock file. It and its folders are made when they are not there yet. */
  readonly path: string
  /** Which SQLite to use, for tests. Default: `node:sqlite` where the runtime has it, otherwise the package. */
  readonly engine?: SqliteEngine | undefined
  /** Where the store's time comes from, for tests. Default: the monotonic clock of the machine, and its wall clock. */
  readonly now?: (() => StoreTime) | undefined
  /** Names the boot that `now` counts from, for tests. Default: the boot id of the machine. */
  readonly boot?: string | undefined
}

export function parseOptions(pathOrOptions: string | SqliteStoreOptions): LockFileOptions {
  const isObject = typeof pathOrOptions === 'object' && pathOrOptions !== null
  const options: SqliteStoreOptions = isObject ? pathOrOptions : { path: pathOrOptions }
  checkOptions(options, ['path', 'engine', 'now', 'boot'])
  const { path, engine, now = machineTime, boot = bootOfMachine() } = options
  if (engine !== undefined && engine !== 'node:sqlite' && engine !== '@photostructure/sqlite') {
    throw expected('engine', '"node:sqlite" or "@photostructure/sqlite"', engine)
  }
  return { path: parsePath(path), engine, now, boot }
}
