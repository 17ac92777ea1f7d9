import { randomBytes } from 'node:crypto'
import { chmodSync, chownSync, existsSync, lstatSync, realpathSync, rmdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { WakeFolder } from './wake-folder.ts'

/**
 * Where a process listens, as a row of the file says it: a name, such as `beside-1000-9f86d081884c7d65`, and never a path.
 * With a path, a user who can write the file could make other processes write to any socket or port of the machine.
 */
export interface Address {
  /** Beside the lock file, which a container that shares the folder sees, too; or among the temporary files. */
  readonly place: SocketPlace
  /** Each user has a folder of its own, so that no user can change what another one has in it. */
  readonly user: number
  readonly name: string
}

export type SocketPlace = 'beside' | 'temporary' | 'pipe'

/** Where to open a socket, best first: not every file system has sockets. Named pipes of Windows are in no folder. */
export const PLACES: readonly SocketPlace[] =
  process.platform === 'win32' ? ['pipe'] : ['beside', 'temporary']

function newAddress(place: SocketPlace): Address {
  return { place, user: process.geteuid?.() ?? 0, name: randomBytes(8).toString('hex') }
}

export function addressText({ place, user, name }: Address): string {
  return `${place}-${user}-${name}`
}

/** `undefined` for everything that {@link addressText} does not make on this system. */
export function parseAddress(text: string): Address | undefined {
  const [, place, user, name] = /^(beside|temporary|pipe)-(\d{1,10})-([0-9a-f]{16})$/.exec(text) ?? []
  const known = PLACES.find((each) => each === place)
  if (known === undefined || user === undefined || name === undefined) return undefined
  return { place: known, user: Number(user), name }
}

/** A path that a socket can be opened or reached at, until it is closed. */
export interface Opening {
  readonly path: string
  close(): void
}

/** The path to another process's socket. Throws when there is none. */
export function openingTo(address: Address, lockFile: string): Opening {
  if (address.place === 'pipe') return { path: pipeOf(address), close: () => {} }
  const folder = WakeFolder.of(folderOf(address, lockFile))
  try {
    if (folder.socket(fileName(address)) === undefined) throw new Error('Nobody listens there any more.')
    return { path: folder.at(fileName(address)), close: () => folder.close() }
  } catch (error) {
    folder.close()
    throw error
  }
}

/** The path of a socket of this process, in a folder that this user alone can change. */
export class OwnSocket implements Opening {
  readonly path: string
  readonly address: Address
  readonly #lockFile: string
  readonly #folder: WakeFolder | undefined

  /** Throws when the folder is refused, or cannot be made. */
  constructor(place: SocketPlace, lockFile: string) {
    this.address = newAddress(place)
    this.#lockFile = lockFile
    if (place === 'pipe') {
      this.path = pipeOf(this.address)
      return
    }
    this.#folder = WakeFolder.own(folderOf(this.address, lockFile))
    try {
      this.path = this.#folder.at(fileName(this.address))
      this.#folder.removeDead((name) => FILE_NAME.test(name))
    } catch (error) {
      this.#folder.close()
      throw error
    }
  }

  /** For the open socket: users who may write the lock file may send wakes, and no others. The process removes it when it ends. */
  opened(): void {
    if (!hooked) process.once('exit', closeAll)
    hooked = true
    atExit.add(this)
    if (this.#folder !== undefined) openToWriters(this.path, this.#lockFile)
  }

  /** Whether other processes still find it. Somebody may have deleted the folder. */
  isInPlace(): boolean {
    return this.#folder === undefined || existsSync(join(this.#folder.path, fileName(this.address)))
  }

  /** Removes the socket, unless its closed server has done so, and the folder, if it is empty then. */
  close(): void {
    atExit.delete(this)
    const folder = this.#folder
    if (folder === undefined) return
    folder.remove(fileName(this.address))
    folder.close()
    try {
      rmdirSync(folder.path)
    } catch {
      // Other sockets are still there.
    }
  }
}

const atExit = new Set<OwnSocket>()
let hooked = false

function closeAll(): void {
  for (const socket of atExit) socket.close()
}

function folderOf({ place, user }: Address, lockFile: string): string {
  // The same folder for processes that name the file by a link.
  return place === 'beside'
    ? `${realpathSync(lockFile)}-wakes-${user}`
    : join(tmpdir(), `holdfast-wakes-${user}`)
}

function fileName({ name }: Address): string {
  return `${name}.sock`
}

const FILE_NAME = /^[0-9a-f]{16}\.sock$/

function pipeOf({ name }: Address): string {
  return `\\\\.\\pipe\\holdfast-${name}`
}

function openToWriters(socket: string, lockFile: string): void {
  const { mode, gid } = statSync(lockFile)
  const writers = mode & 0o666
  if (lstatSync(socket).gid === gid) return chmodSync(socket, writers)
  try {
    chownSync(socket, -1, gid)
    chmodSync(socket, writers)
  } catch {
    // This user is not in the group of the file, so no group gets access.
    chmodSync(socket, writers & ~0o060)
  }
}
