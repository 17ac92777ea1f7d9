import {
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  type Stats,
  unlinkSync,
} from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'

/**
 * A folder of sockets, held open. On Linux everything in it is reached through the open folder. So no user can put another folder
 * in its place between a check and its use, and the path of a socket is short, however long the path of the folder is. A folder
 * that is a link is refused, by the process that listens and by those that send.
 */
export class WakeFolder {
  readonly path: string
  readonly #descriptor: number
  #closed = false

  private constructor(path: string, descriptor: number) {
    this.path = path
    this.#descriptor = descriptor
  }

  /** For listening: made if it is missing, and refused unless this user alone can change what is in it. */
  static own(path: string): WakeFolder {
    const isNew = makeFolder(path)
    const folder = WakeFolder.of(path)
    try {
      const stats = fstatSync(folder.#descriptor)
      if (stats.uid !== process.geteuid?.())
        throw refusal(path, 'a folder of this user', 'one of another user')
      if ((stats.mode & WRITABLE_BY_OTHERS) !== 0) {
        throw refusal(path, 'a folder of this user alone', 'one that others may write to')
      }
      // Whatever the umask of this process is, others may pass through to a socket that they may write to.
      if (isNew) fchmodSync(folder.#descriptor, OPEN_TO_OTHERS)
      return folder
    } catch (error) {
      folder.close()
      throw error
    }
  }

  /** For sending to the processes that listen there. */
  static of(path: string): WakeFolder {
    const found = lstatSync(path)
    if (!found.isDirectory()) throw refusal(path, 'a folder', 'a link or a file')
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW)
    const opened = fstatSync(descriptor)
    if (opened.ino === found.ino && opened.dev === found.dev) return new WakeFolder(path, descriptor)
    closeSync(descriptor)
    throw refusal(path, 'a folder that stays', 'another one in the same moment')
  }

  /** The path of a socket in this folder, good until the folder is closed. */
  at(fileName: string): string {
    const throughDescriptor = `/proc/self/fd/${this.#descriptor}`
    const path = join(existsSync(throughDescriptor) ? throughDescriptor : this.path, fileName)
    if (Buffer.byteLength(path) <= LONGEST_PATH) return path
    throw new Error(
      `The path ${JSON.stringify(path)} is too long for a socket: use a shorter one for the lock file.`,
    )
  }

  /** The socket of that name, if it is one. Follows no link. */
  socket(fileName: string): Stats | undefined {
    const stats = lstatSync(this.at(fileName), { throwIfNoEntry: false })
    return stats?.isSocket() === true ? stats : undefined
  }

  /**
   * Removes sockets that killed processes of this user have left: they have one of our names, and no process answers. A few at a
   * time, in the background.
   */
  removeDead(isOurs: (fileName: string) => boolean): void {
    const dead = readdirSync(this.path).filter((name) => isOurs(name) && this.#isOld(this.socket(name)))
    for (const name of dead.slice(0, DEAD_AT_ONCE)) {
      const probe = connect({ path: this.at(name) }, () => probe.destroy())
      probe.unref()
      probe.on('error', (error) => {
        // Another look at the socket, because time has passed.
        if (this.#closed || !('code' in error) || error.code !== 'ECONNREFUSED') return
        if (this.#isOld(this.socket(name))) this.remove(name)
      })
    }
  }

  remove(fileName: string): void {
    try {
      unlinkSync(this.at(fileName))
    } catch {
      // Another process has removed it.
    }
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    closeSync(this.#descriptor)
  }

  /** A socket that is being opened has a path already, and does not answer yet. */
  #isOld(stats: Stats | undefined): boolean {
    return (
      stats !== undefined && stats.uid === process.geteuid?.() && Date.now() - stats.mtimeMs >= OPENING_MS
    )
  }
}

/** True if the folder was not there before. Never follows a link. */
function makeFolder(path: string): boolean {
  try {
    mkdirSync(path, OPEN_TO_OTHERS)
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false
    throw error
  }
}

function refusal(path: string, expected: string, got: string): Error {
  return new Error(`Expected ${JSON.stringify(path)} to be ${expected}, got ${got}: remove it.`)
}

const OPEN_TO_OTHERS = 0o755
const WRITABLE_BY_OTHERS = 0o022
/** 104 bytes on macOS, 108 on Linux, with a NUL at the end. */
const LONGEST_PATH = 103
const DEAD_AT_ONCE = 32
const OPENING_MS = 10_000
