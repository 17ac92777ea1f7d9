import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Wake } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { messageOf, wakeOf } from '../answers.ts'
import { addressText, type Opening, OwnSocket, openingTo, PLACES, parseAddress } from './inbox-address.ts'
import type { Notice } from './room-window.ts'

/**
 * Sends and receives wakes. Each process that waits has a local socket (a named pipe on Windows) in a folder beside the lock
 * file, and the rows of its tickets name the socket. A wake is a line: see `messageOf`. An empty line says nothing.
 *
 * Measured between two processes, from the write to the callback: 0.08 ms over a kept connection, 0.3 ms over a new one,
 * 0.08 ms by UDP on the loopback, 0.07 ms by fs.watch() on a file. All cost nothing when idle. But UDP does not cross the
 * border of a container, though the file does. And a watched file does not tell whether its reader is still alive, so no process
 * could remove it. A socket does both.
 */
export class Inbox {
  /** Empty until a listener is added. */
  address = ''
  readonly #lockFile: string
  readonly #listeners = new Set<(wake: Wake) => void>()
  readonly #incoming = new Set<Socket>()
  readonly #outgoing = new Map<string, Outgoing>()
  readonly #onUnheard: (notice: Notice) => Promise<void>
  #server: Promise<OpenInbox> | undefined
  #socket: OwnSocket | undefined
  /** Whether the tickets of this process name a socket that does not reach it, or are in another file. */
  #isLost = false
  #isReopening = false
  #reopenAt = 0
  #closed = false

  /** `onUnheard`: no process listens any more at the address of a notice, so its process is gone. Runs in the background. */
  constructor(lockFile: string, onUnheard: (notice: Notice) => Promise<void>) {
    this.#lockFile = lockFile
    this.#onUnheard = onUnheard
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const hadAddress = this.address !== ''
    this.#server ??= this.#open()
    try {
      await this.#server
    } catch (cause) {
      this.#server = undefined
      const reason = cause instanceof Error ? cause.message : String(cause)
      const message = `No socket can be opened for wakes, so waiters ask now and then instead. ${reason}`
      throw new StoreError('store-unavailable', message, { cause })
    }
    // A function of its own for each call: the caller may pass the same one twice.
    const listener = (wake: Wake): void => onWake(wake)
    this.#listeners.add(listener)
    // The tickets that this process holds already are in the file without an address: they would not hear of an eviction.
    if (!hadAddress) listener({ tag: 'all' })
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /**
   * Whether the process at this address takes a message now, as far as this process can know at once: it is this process itself,
   * or its end of an open connection takes an empty line. Once a process has ended, the system refuses the line. False if there is
   * no connection yet.
   */
  reaches(inbox: string): boolean {
    if (inbox === '') return false
    if (inbox === this.address) return this.#listeners.size > 0
    const socket = this.#outgoing.get(inbox)?.socket
    return socket !== undefined && takesLine(socket)
  }

  /**
   * Opens another socket if this one cannot be reached any more: its folder was deleted, or the last attempt failed. Also if the lock
   * file is another one, which does not know the waiters of this process.
   */
  check(isAnother: boolean): void {
    if (this.#server === undefined && this.#listeners.size === 0) return
    if (isAnother) this.#isLost = true
    if (this.#isReopening || this.#closed || performance.now() < this.#reopenAt) return
    if (this.#isLost || this.#socket?.isInPlace() === false) void this.#reopen()
  }

  async #reopen(): Promise<void> {
    this.#isReopening = true
    const open = await this.#server?.catch(() => undefined)
    if (open !== undefined) await this.#shut(open)
    if (!this.#closed) {
      this.#isLost = false
      this.#reopenAt = performance.now() + REOPEN_PAUSE_MS
      this.#server = this.#open()
      await this.#server.catch(() => {
        this.#server = undefined
        this.#isLost = true
      })
      // The tickets of this process then name the new socket, or none, and are in the new file. While no socket can be opened, they are
      // asked about once.
      if (open !== undefined || !this.#isLost) this.#deliver({ tag: 'all' })
    }
    this.#isReopening = false
  }

  /**
   * Never fails, because a wake may be lost. Returns a promise while connections are new: a process that releases a key and ends at once
   * would otherwise lose these wakes. It never waits for `onUnheard`.
   */
  tell(notices: readonly Notice[]): Promise<unknown> | undefined {
    const connecting: Promise<void>[] = []
    for (const notice of notices) {
      const { wake, inbox } = notice
      if (inbox === '') continue
      if (inbox === this.address) {
        this.#deliver(wake)
        continue
      }
      const outgoing = this.#connectionTo(inbox)
      if (outgoing === undefined) continue
      const { socket, answer } = outgoing
      // While it connects, the socket keeps what is written.
      const isConnecting = socket.connecting
      socket.write(`${messageOf(wake)}\n`)
      if (!isConnecting) remember(outgoing, notice)
      else
        connecting.push(
          answer.then((result) => {
            if (result === 'connected') remember(outgoing, notice)
            else if (result === 'refused') this.#unheard([notice])
          }),
        )
    }
    return connecting.length === 0 ? undefined : Promise.all(connecting)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#listeners.clear()
    // A process that releases and ends at once still has to wake the next waiter.
    await Promise.all([...this.#outgoing.values()].map(({ socket }) => flush(socket)))
    const open = await this.#server?.catch(() => undefined)
    if (open?.server.listening) await this.#shut(open)
  }

  #deliver(wake: Wake): void {
    for (const listener of this.#listeners) listener(wake)
  }

  async #open(): Promise<OpenInbox> {
    const failures: unknown[] = []
    for (const place of PLACES) {
      let socket: OwnSocket | undefined
      const server = createServer((connection) => this.#receive(connection))
      try {
        socket = new OwnSocket(place, this.#lockFile)
        await listening(server, socket.path)
        socket.opened()
        this.address = addressText(socket.address)
        this.#socket = socket
        return { server, socket }
      } catch (error) {
        failures.push(error)
        server.close()
        socket?.close()
      }
    }
    throw failures[0]
  }

  async #shut({ server, socket }: OpenInbox): Promise<void> {
    this.address = ''
    this.#socket = undefined
    for (const incoming of this.#incoming) incoming.destroy()
    await new Promise<void>((resolve) => server.close(() => resolve()))
    socket.close()
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket)
    socket.unref().setEncoding('utf8')
    let rest = ''
    socket.on('data', (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) if (line !== '') this.#deliver(wakeOf(line))
      if (rest.length > LONGEST_LINE) socket.destroy()
    })
    socket.on('error', () => {})
    socket.on('close', () => this.#incoming.delete(socket))
  }

  #unheard(notices: readonly Notice[]): void {
    for (const notice of notices) if (!this.#closed) void this.#onUnheard(notice)
  }

  /** `undefined` when there is no socket, or the row names none of ours. The ticket then asks again by itself. */
  #connectionTo(inbox: string): Outgoing | undefined {
    const open = this.#outgoing.get(inbox)
    if (open !== undefined) return open
    const opening = this.#openingTo(inbox)
    if (opening === undefined) return undefined
    // As an object, because Node.js takes a text that is a number for a port.
    const socket = connect({ path: opening.path })
    const outgoing: Outgoing = { socket, answer: answerOf(socket), unproven: [] }
    const forget = (): void => {
      if (this.#outgoing.get(inbox) === outgoing) this.#outgoing.delete(inbox)
    }
    // The process stays until the line is on its way. An open connection alone does not keep it.
    socket.once('connect', () => {
      socket.unref()
      opening.close()
    })
    socket.setTimeout(IDLE_MS, () => {
      forget()
      socket.end()
    })
    socket.on('error', forget)
    // Nothing comes back, but only a stream that is read reports its end.
    socket.resume().on('close', () => {
      forget()
      opening.close()
      const since = performance.now() - UNPROVEN_MS
      const recent = outgoing.unproven.filter(({ at }) => at >= since).map(({ notice }) => notice)
      if (recent.length > 0) this.#probeAfter(ENDING_MS, inbox, recent)
    })
    this.#outgoing.set(inbox, outgoing)
    return outgoing
  }

  /**
   * The process may have ended before it read the last lines. Or it lives and has no file descriptor left: then it closes every
   * connection that it accepts. One more connection tells which. A process that is ending may not have closed its listening socket yet, so this is
   * tried up to three times.
   */
  #probeAfter(pauseMs: number, inbox: string, notices: readonly Notice[]): void {
    if (this.#closed) return
    const probe = async (): Promise<void> => {
      const listens = await this.#probe(inbox, notices)
      if (listens && pauseMs < LONG_ENDING_MS) this.#probeAfter(5 * pauseMs, inbox, notices)
    }
    setTimeout(() => void probe(), pauseMs).unref()
  }

  /** Whether a process listens there. If none does, nobody has heard the notices. */
  async #probe(inbox: string, notices: readonly Notice[]): Promise<boolean> {
    const opening = this.#openingTo(inbox)
    if (opening === undefined) return false
    const socket = connect({ path: opening.path }).unref()
    const result = await answerOf(socket)
    socket.destroy()
    opening.close()
    if (result === 'refused') this.#unheard(notices)
    return result === 'connected'
  }

  #openingTo(inbox: string): Opening | undefined {
    const address = parseAddress(inbox)
    if (address === undefined) return undefined
    try {
      return openingTo(address, this.#lockFile)
    } catch {
      return undefined
    }
  }
}

interface Outgoing {
  readonly socket: Socket
  readonly answer: Promise<ConnectAnswer>
  /** The last lines that were written to a process that listened. It may not have read them. */
  readonly unproven: { readonly notice: Notice; readonly at: number }[]
}

/** `refused`: no process listens at the socket any more, so its process has ended. `unknown` says nothing about the process. */
type ConnectAnswer = 'connected' | 'refused' | 'unknown'

interface OpenInbox {
  readonly server: Server
  readonly socket: OwnSocket
}

/** After this long without use a connection is closed. */
const IDLE_MS = 5000
/** The longest acceptance term that the engine gives: an older offer has ended by itself. */
const UNPROVEN_MS = 3000
/** A process that ends closes its sockets one by one, as a rule within microseconds. */
const ENDING_MS = 10
/** The pause before the last probe. On a busy machine such a process may be stopped between two of its sockets. */
const LONG_ENDING_MS = 250
const LONGEST_LINE = 4096
const FLUSH_MS = 500
/** After an attempt to open another socket, before the next one. */
const REOPEN_PAUSE_MS = 1000

function listening(server: Server, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    // It does not keep the process alive. Exclusive, because the primary of a cluster would share it among its workers.
    server.unref().listen({ path: address, exclusive: true }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** True only if the system has taken the line at once: it did not refuse it, and keeps nothing back for a full buffer. */
function takesLine(socket: Socket): boolean {
  if (socket.connecting || !socket.writable || socket.writableLength > 0) return false
  socket.write('\n')
  return socket.errored === null && socket.writableLength === 0
}

function remember({ unproven }: Outgoing, notice: Notice): void {
  const now = performance.now()
  while (unproven[0] !== undefined && unproven[0].at < now - UNPROVEN_MS) unproven.shift()
  unproven.push({ notice, at: now })
}

/**
 * Whether a process listens there. Only a refusal says no: a frozen process with a full backlog gives EAGAIN, the socket of
 * another user EACCES.
 */
function answerOf(socket: Socket): Promise<ConnectAnswer> {
  return new Promise((resolve) => {
    // Cleared at once, because a process that ends would wait for it.
    const answer = (result: ConnectAnswer): void => {
      clearTimeout(timer)
      resolve(result)
    }
    const timer = setTimeout(answer, FLUSH_MS, 'unknown')
    socket.once('connect', () => answer('connected'))
    socket.once('error', (error: NodeJS.ErrnoException) =>
      answer(error.code === 'ECONNREFUSED' ? 'refused' : 'unknown'),
    )
    socket.once('close', () => answer('unknown'))
  })
}

/** Resolves when everything written is on its way, or when the reader is gone or hangs. */
function flush(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve())
    socket.setTimeout(FLUSH_MS, () => socket.destroy())
    socket.end(() => socket.destroy())
  })
}
