import { randomBytes } from 'node:crypto'
import { chmodSync, chownSync, lstatSync, realpathSync, rmdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { WakeFolder } from './wake-folder.ts'

/**
 * What stands in a row of the file to say where its process listens: a name, such as `beside-1000-9f86d081884c7d65`, and
 * never a path. Whoever can write the file could otherwise have any socket or port of the machine written to.
 */
export interface Address {
  /** Beside the lock file, where also a container finds it that shares the folder, or among the temporary files. */
  readonly place: Place
  /** Each user has a folder of its own, so that nobody can change what another one has in it. */
  readonly user: number
  readonly name: string
}

export type Place = 'beside' | 'temporary' | 'pipe'

/** Where to open a socket, best first: not every file system has sockets. Windows has named pipes, which lie in no folder. */
export const PLACES: readonly Place[] = process.platform === 'win32' ? ['pipe'] : ['beside', 'temporary']

function newAddress(place: Place): Address {
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

/** The way to somebody else's socket; throws where there is none. */
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

/** A place for a socket of this process, in a folder that this user alone can change. */
export class OwnSocket implements Opening {
  readonly path: string
  readonly address: Address
  readonly #lockFile: string
  readonly #folder: WakeFolder | undefined

  /** Throws when the folder is refused, or cannot be made. */
  constructor(place: Place, lockFile: string) {
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

  /** Once it is open: who may write the lock file may send wakes, and nobody else. A process that just ends removes it. */
  opened(): void {
    if (!hooked) process.once('exit', closeAll)
    hooked = true
    atExit.add(this)
    if (this.#folder !== undefined) openToWriters(this.path, this.#lockFile)
  }

  /** Removes the socket, which a closed server has done already, and its folder, if it was the last one there. */
  close(): void {
    atExit.delete(this)
    const folder = this.#folder
    if (folder === undefined) return
    folder.remove(fileName(this.address))
    folder.close()
    try {
      rmdirSync(folder.path)
    } catch {
      // Others are still there.
    }
  }
}

const atExit = new Set<OwnSocket>()
let hooked = false

function closeAll(): void {
  for (const socket of atExit) socket.close()
}

function folderOf({ place, user }: Address, lockFile: string): string {
  // Whoever names the file by a link has to find the others.
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
    // This user is not in the group of the file, so no group may.
    chmodSync(socket, writers & ~0o060)
  }
}
