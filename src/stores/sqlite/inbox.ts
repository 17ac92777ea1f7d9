import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Wake } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { addressesFor, discard, discardAtExit, openAs } from './inbox-address.ts'
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
  #closed = false

  constructor(lockFile: string) {
    this.#lockFile = lockFile
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const hadAddress = this.address !== ''
    this.#server ??= this.#open()
    try {
      await this.#server
    } catch (cause) {
      this.#server = undefined
      const message = 'No socket can be opened for wakes: waiters ask now and then instead.'
      throw new StoreError('store-unavailable', message, { cause })
    }
    // An own function for each call: the same one may listen twice.
    const listener = (wake: Wake): void => onWake(wake)
    this.#listeners.add(listener)
    // What this process has taken until now stands in the file without an address, and would not hear of an eviction.
    if (!hadAddress) listener({ tag: 'all' })
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /** The lock file was deleted, and probably everything beside it. */
  async reopen(): Promise<void> {
    if (this.#server === undefined) return
    await this.#shut(await this.#server)
    if (this.#closed) return
    this.#server = this.#open()
    await this.#server.catch(() => {
      this.#server = undefined
    })
    // Whoever waits in this process is unknown in the new file.
    this.#deliver({ tag: 'all' })
  }

  /**
   * Never fails: a wake is a hint. A promise when some are not on their way yet, because their connection is new: who gives a
   * key back and dies at once would take them along.
   */
  tell(notices: readonly Notice[]): Promise<unknown> | undefined {
    const connecting: Promise<void>[] = []
    for (const { id, inbox } of notices) {
      if (inbox === '') continue
      if (inbox === this.address) {
        this.#deliver({ tag: 'ticket', id })
        continue
      }
      const socket = this.#connectionTo(inbox)
      if (socket.connecting) connecting.push(written(socket, `${id}\n`))
      else socket.write(`${id}\n`)
    }
    return connecting.length === 0 ? undefined : Promise.all(connecting)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#listeners.clear()
    // A process that releases and ends at once still has to tell who is next.
    await Promise.all([...this.#outgoing.values()].map(flush))
    const server = await this.#server?.catch(() => undefined)
    if (server?.listening) await this.#shut(server)
  }

  #deliver(wake: Wake): void {
    for (const listener of this.#listeners) listener(wake)
  }

  async #open(): Promise<Server> {
    let failure: unknown
    for (const address of addressesFor(this.#lockFile)) {
      const server = createServer((socket) => this.#receive(socket))
      try {
        await listening(server, address)
        discardAtExit(address)
        openAs(address, this.#lockFile)
        this.address = address
        return server
      } catch (error) {
        failure = error
        server.close()
      }
    }
    throw failure
  }

  async #shut(server: Server): Promise<void> {
    const { address } = this
    this.address = ''
    for (const socket of this.#incoming) socket.destroy()
    await new Promise<void>((resolve) => server.close(() => resolve()))
    discard(address)
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket)
    socket.unref().setEncoding('utf8')
    let rest = ''
    socket.on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const id of lines) this.#deliver({ tag: 'ticket', id })
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
    // It alone keeps no process alive. Exclusive: in a cluster the primary would share it out.
    server.unref().listen({ path: address, exclusive: true }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** It is on its way then, or nobody is there, or that takes too long. */
function written(socket: Socket, line: string): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, FLUSH_MS)
    socket.write(line, () => {
      clearTimeout(timer)
      resolve()
    })
  })
}

/** Everything written is on its way then, or its reader is gone, or hangs. */
function flush(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve())
    socket.setTimeout(FLUSH_MS, () => socket.destroy())
    socket.end(() => socket.destroy())
  })
}
