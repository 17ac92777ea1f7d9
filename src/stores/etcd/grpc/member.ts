import type { EtcdTls } from '../options.ts'
import type { Dial, MemberConnection, MemberRequest, MemberStream, StreamListener } from './connection.ts'
import { STATUS } from './doctor-messages.ts'
import { ConnectionError } from './failures.ts'

export interface MemberOptions {
  readonly url: string
  readonly tls: EtcdTls
  readonly dial: Dial
}

/**
 * One member of etcd, over one connection that is made when it is needed. Requests find out whether the member is silent. HTTP/2
 * pings cannot: etcd takes one of these in five seconds, which is too slow for a short ttl.
 */
export class Member {
  readonly #options: MemberOptions
  #connection: MemberConnection | undefined
  /** The current connection, and older ones that still have something under way. */
  readonly #connections = new Set<MemberConnection>()
  readonly #probed = new WeakSet<MemberConnection>()
  #isClosed = false

  constructor(options: MemberOptions) {
    this.#options = options
  }

  /** One request and its reply. Rejects with {@link StatusError} or {@link ConnectionError}, in time whatever happens. */
  request(request: MemberRequest, timeoutMs: number): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const connection = this.#connected()
      const sentAt = performance.now()
      const late = () => {
        giveUp()
        reject(new ConnectionError(`No answer within ${timeoutMs} ms.`))
      }
      const doubt = () => {
        this.#doubt(connection, sentAt)
        if (timeoutMs <= SILENT_MS) late()
        else timer = setTimeout(late, timeoutMs - SILENT_MS)
      }
      // Keeps the process alive for the caller that awaits the reply: the socket does not.
      let timer = setTimeout(doubt, Math.min(SILENT_MS, timeoutMs))
      const giveUp = connection.ask(request, (error, reply) => {
        clearTimeout(timer)
        if (error === undefined) return resolve(reply as Buffer)
        this.#failed(connection)
        reject(error)
      })
    })
  }

  /** A stream of messages in both directions. Ends with `onEnd`, also if no first message comes. */
  openStream(request: Omit<MemberRequest, 'message'>, listener: StreamListener): MemberStream {
    const connection = this.#connected()
    const startedAt = performance.now()
    const firstWord = setTimeout(() => {
      stream.close()
      this.#doubt(connection, startedAt)
      listener.onEnd(new ConnectionError(`No answer within ${CONNECT_MS} ms.`))
    }, CONNECT_MS)
    firstWord.unref()
    const stream = connection.openStream(request, {
      onMessage(message) {
        clearTimeout(firstWord)
        listener.onMessage(message)
      },
      onEnd: (error) => {
        clearTimeout(firstWord)
        if (error !== undefined) this.#failed(connection)
        listener.onEnd(error)
      },
    })
    return {
      send: stream.send,
      close() {
        clearTimeout(firstWord)
        stream.close()
      },
    }
  }

  close(): void {
    this.#isClosed = true
    this.#connection = undefined
    for (const connection of this.#connections) connection.close()
  }

  #connected(): MemberConnection {
    if (this.#connection !== undefined) return this.#connection
    if (this.#isClosed) throw new ConnectionError('The store was closed.')
    const { url, tls, dial } = this.#options
    const connection = dial({
      url,
      tls,
      onLeft: () => this.#leave(connection),
      onClosed: () => this.#connections.delete(connection),
    })
    this.#connection = connection
    this.#connections.add(connection)
    setTimeout(() => this.#failed(connection), CONNECT_MS).unref()
    return connection
  }

  /** The member is silent although something was asked. It gets one more second, and a request that etcd answers at once. */
  #doubt(connection: MemberConnection, since: number): void {
    // A connection that is being made has a time limit of its own.
    if (connection.heardAt >= since || !connection.isReady || this.#probed.has(connection)) return
    this.#probed.add(connection)
    const { bytesRead } = connection
    const giveUp = connection.ask({ path: STATUS.path, message: Buffer.alloc(0), token: '' }, () => {})
    const decide = () => {
      giveUp()
      this.#probed.delete(connection)
      // A large reply takes its time. The reply to the small request stands behind it.
      const isReading = connection.bytesRead - bytesRead > OF_A_LARGE_REPLY
      if (connection.heardAt < since && !isReading) this.#drop(connection)
    }
    // Twice, because after a pause of this process a timer fires before what has arrived meanwhile is read.
    setTimeout(() => setTimeout(decide, SILENT_MS / 4).unref(), SILENT_MS).unref()
  }

  /** If the connection was not made or is lost, the next request makes a new one. */
  #failed(connection: MemberConnection): void {
    if (connection === this.#connection && !connection.isReady) this.#drop(connection)
  }

  #drop(connection: MemberConnection): void {
    this.#leave(connection)
    connection.close()
  }

  #leave(connection: MemberConnection): void {
    if (this.#connection === connection) this.#connection = undefined
  }
}

/**
 * A member that is silent for so long is asked whether it is there. If it is silent for as long again, its connection is closed.
 */
const SILENT_MS = 1000
/** More bytes than these in a second are part of a reply. What keeps a connection alive has fewer. */
const OF_A_LARGE_REPLY = 1000
/** The time limit for a new connection, and for the first message on a stream. */
const CONNECT_MS = 5000
