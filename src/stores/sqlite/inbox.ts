import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Wake } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { addressesFor, discard, discardAtExit } from './inbox-address.ts'
import type { Notice } from './room-window.ts'

/**
 * How processes tell each other of wakes: each that waits has a local socket (a named pipe on Windows) in a folder beside
 * the lock file, and its address stands next to its tickets. A wake is a line with the ticket's id.
 *
 * Measured between two processes, from the write to the callback: 0.08 ms over a kept connection, 0.3 ms over a new one,
 * 0.08 ms by UDP on the loopback, 0.07 ms by fs.watch() on a file; all cost nothing when idle. UDP ends at the border of
 * a container, though the file is shared across it; a watched file does not tell whether its reader is still alive, so
 * nobody could clear it away. A socket does both.
 */
export class Inbox {
  /** Empty until somebody listens. */
  address = ''
  readonly #lockFile: string
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #incoming = new Set<Socket>()
  readonly #outgoing = new Map<string, Socket>()
  #server: Promise<Server> | undefined

  constructor(lockFile: string) {
    this.#lockFile = lockFile
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    this.#server ??= this.#open()
    try {
      await this.#server
    } catch (cause) {
      this.#server = undefined
      throw new StoreError(
        'store-unavailable',
        'No socket can be opened for wakes: waiters ask now and then instead.',
        {
          cause,
        },
      )
    }
    // An own function for each call: the same one may listen twice.
    const listener = (wake: Wake): void => onWake(wake)
    this.#listeners.add(listener)
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /** Never fails: a wake is a hint. */
  tell(notices: readonly Notice[]): void {
    for (const { id, inbox } of notices) {
      if (inbox === '') continue
      if (inbox === this.address) this.#deliver(id)
      else this.#connectionTo(inbox).write(`${id}\n`)
    }
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    // A process that releases and ends at once still has to tell who is next.
    await Promise.all([...this.#outgoing.values()].map(flush))
    const server = await this.#server?.catch(() => undefined)
    if (server === undefined) return
    for (const socket of this.#incoming) socket.destroy()
    await new Promise<void>((resolve) => server.close(() => resolve()))
    discard(this.address)
  }

  #deliver(id: string): void {
    for (const listener of this.#listeners) listener({ tag: 'ticket', id })
  }

  async #open(): Promise<Server> {
    const server = createServer((socket) => this.#receive(socket))
    // It alone keeps no process alive.
    server.unref()
    let failure: unknown
    for (const address of addressesFor(this.#lockFile)) {
      try {
        await listening(server, address)
        this.address = address
        discardAtExit(address)
        return server
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket)
    socket.unref().setEncoding('utf8')
    let rest = ''
    socket.on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const id of lines) this.#deliver(id)
      if (rest.length > LONGEST_LINE) socket.destroy()
    })
    socket.on('error', () => {})
    socket.on('close', () => this.#incoming.delete(socket))
  }

  #connectionTo(inbox: string): Socket {
    const open = this.#outgoing.get(inbox)
    if (open !== undefined) return open
    const socket = connect(inbox)
    const forget = (): void => {
      if (this.#outgoing.get(inbox) === socket) this.#outgoing.delete(inbox)
    }
    // Until the line is on its way the process stays; an open connection is no reason to.
    socket.once('connect', () => socket.unref())
    socket.setTimeout(IDLE_MS, () => {
      forget()
      socket.end()
    })
    // Its process is gone, and its ticket will be skipped.
    socket.on('error', () => {})
    socket.on('close', forget)
    this.#outgoing.set(inbox, socket)
    return socket
  }
}

/** A connection that was not needed for so long is closed. */
const IDLE_MS = 5000
const LONGEST_LINE = 4096
const FLUSH_MS = 500

function listening(server: Server, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(address, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function flush(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve())
    socket.setTimeout(FLUSH_MS, () => socket.destroy())
    socket.end(() => socket.destroy())
  })
}
