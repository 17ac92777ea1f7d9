import { randomUUID } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, rmdirSync, rmSync, statSync, unlink } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/**
 * Where a process may open its socket: first beside the lock file, where also a container finds it that shares the
 * folder, then in the folder for temporary files, because the path of a socket must be short and not every file system
 * has sockets. The folder is made when its turn comes.
 */
export function* addressesFor(lockFile: string): Generator<string> {
  const name = randomUUID()
  if (process.platform === 'win32') {
    yield `\\\\.\\pipe\\holdfast-${name}`
    return
  }
  for (const folder of [`${lockFile}-wakes`, join(tmpdir(), 'holdfast-wakes')]) {
    const address = join(folder, `${name}.sock`)
    if (Buffer.byteLength(address) <= LONGEST_ADDRESS && prepareFolder(folder)) yield address
  }
}

/** Who may write the lock file, may send wakes. */
export function openAs(address: string, lockFile: string): void {
  if (process.platform !== 'win32') chmodSync(address, statSync(lockFile).mode & 0o777)
}

/** Removes the socket, which a closed server has done already, and its folder, if it was the last one there. */
export function discard(address: string): void {
  atExit.delete(address)
  if (process.platform === 'win32') return
  try {
    rmSync(address, { force: true })
    rmdirSync(dirname(address))
  } catch {
    // Others are still there.
  }
}

/** A process that just ends leaves its sockets behind otherwise. */
export function discardAtExit(address: string): void {
  if (!hooked) process.once('exit', () => atExit.forEach(discard))
  hooked = true
  atExit.add(address)
}

const atExit = new Set<string>()
let hooked = false

/** 104 bytes on macOS, 108 on Linux, with a NUL at the end. */
const LONGEST_ADDRESS = 103

/** As open to others as the folder it is in. */
function prepareFolder(folder: string): boolean {
  try {
    if (!existsSync(folder)) {
      mkdirSync(folder)
      chmodSync(folder, statSync(dirname(folder)).mode & 0o7777)
    }
    removeDead(folder)
    return true
  } catch {
    return false
  }
}

/** The sockets of processes that were killed: nobody answers there. A few at a time, and nobody waits for it. */
function removeDead(folder: string): void {
  const addresses = readdirSync(folder).map((name) => join(folder, name))
  for (const address of addresses.slice(0, DEAD_AT_ONCE)) {
    // One that is just being opened has a path already, and does not answer yet.
    const madeAt = statSync(address, { throwIfNoEntry: false })?.mtimeMs
    if (madeAt === undefined || Date.now() - madeAt < OPENING_MS) continue
    const socket = connect(address, () => socket.destroy())
    socket.unref()
    socket.on('error', (error) => {
      // Where it belongs to somebody else, that one has to remove it.
      if ('code' in error && error.code === 'ECONNREFUSED') unlink(address, () => {})
    })
  }
}

const DEAD_AT_ONCE = 32
const OPENING_MS = 10_000
