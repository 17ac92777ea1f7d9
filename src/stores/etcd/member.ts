import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import type { ConnectionOptions } from 'node:tls'
import { ConnectionError, NOT_ETCD, StatusError } from './failures.ts'
import { FrameReader } from './frames.ts'

export interface Ears {
  onMessage(message: Buffer): void
  /** Once, however it ends; undefined: as it should. */
  onEnd(error: Error | undefined): void
}

export interface Conversation {
  send(frame: Buffer): void
  /** `onEnd` is not called any more. */
  close(): void
}

/**
 * One member of etcd, over one HTTP/2 connection that is made when it is needed: gRPC, as far as etcd uses it.
 *
 * By hand on `node:http2`, and not by @grpc/grpc-js or etcd's JSON gateway: a put and a delete, one after the other, took
 * 0.5 ms this way, 0.9 ms and 1.2 ms those ways, with half of the processor time of grpc-js (etcd 3.4, Node.js 20). It
 * takes 200 lines, and users install nothing.
 */
export class Member {
  readonly url: string
  readonly #tls: ConnectionOptions
  #session: ClientHttp2Session | undefined
  /** That one, and those that the member has asked us to leave while something was under way. */
  readonly #sessions = new Set<ClientHttp2Session>()
  #isConnected = false
  /** Streams that stay open: while there are any, the connection is asked now and then whether it is alive. */
  #conversations = 0
  #pulse: NodeJS.Timeout | undefined
  #isPinged = false

  constructor(url: string, tls: ConnectionOptions) {
    this.url = url
    this.#tls = tls
  }

  /** One request and its reply. Rejects with {@link StatusError} or {@link ConnectionError}, in time whatever happens. */
  request(path: string, frame: Buffer, options: { token: string; timeoutMs: number }): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const stream = this.#open(path, options.token)
      if (stream instanceof Error) return reject(stream)
      const timer = setTimeout(() => {
        this.#doubt()
        done(new ConnectionError(`No answer within ${options.timeoutMs} ms.`, { unsent: !this.#isConnected }))
        stream.close(constants.NGHTTP2_CANCEL)
      }, options.timeoutMs)
      timer.unref()
      let message: Buffer | undefined
      const done = (error: Error | undefined) => {
        clearTimeout(timer)
        if (error !== undefined) reject(error)
        else if (message === undefined) reject(new ConnectionError(NOT_ETCD, { unsent: false }))
        else resolve(message)
      }
      this.#hear(stream, {
        onMessage: (bytes) => {
          message = bytes
        },
        onEnd: done,
      })
      stream.end(frame)
    })
  }

  /** A stream of messages in both directions. Ends with `onEnd`, also when the member is silent for seconds. */
  converse(path: string, { token, ears }: { token: string; ears: Ears }): Conversation {
    const stream = this.#open(path, token)
    if (stream instanceof Error) {
      queueMicrotask(() => ears.onEnd(stream))
      return { send() {}, close() {} }
    }
    this.#conversations += 1
    this.#watchPulse()
    let isOver = false
    const { session } = stream
    const end = () => {
      if (!isOver) this.#conversations -= 1
      isOver = true
      session?.off('goaway', leave)
    }
    // It would go on for as long as the member likes, on a connection that nobody looks after any more.
    const leave = () => {
      if (isOver) return
      end()
      stream.close(constants.NGHTTP2_CANCEL)
      ears.onEnd(undefined)
    }
    session?.once('goaway', leave)
    this.#hear(stream, {
      onMessage: (message) => {
        if (!isOver) ears.onMessage(message)
      },
      onEnd(error) {
        if (isOver) return
        end()
        ears.onEnd(error)
      },
    })
    return {
      send(frame) {
        if (!stream.destroyed) stream.write(frame)
      },
      close() {
        end()
        stream.close(constants.NGHTTP2_CANCEL)
      },
    }
  }

  close(): void {
    clearInterval(this.#pulse)
    this.#pulse = undefined
    for (const session of this.#sessions) session.destroy()
    this.#session = undefined
  }

  #open(path: string, token: string): ClientHttp2Stream | Error {
    try {
      const session = this.#connection()
      const stream = session.request({
        ':method': 'POST',
        ':path': path,
        'content-type': 'application/grpc',
        te: 'trailers',
        // Watches of a member that has lost its leader end, instead of being silent.
        hasleader: 'true',
        ...(token === '' ? {} : { token }),
      })
      if (!stream.destroyed) return stream
      // It has had 2^30 of them, which are twelve days of a thousand a second, and there are no numbers left.
      stream.on('error', () => {})
      session.close()
      return this.#open(path, token)
    } catch (error) {
      return new ConnectionError('The connection could not be used.', { unsent: true, cause: error })
    }
  }

  #connection(): ClientHttp2Session {
    const present = this.#session
    if (present !== undefined && !present.closed && !present.destroyed) return present
    const session = connect(this.url, { ...this.#tls, settings: { enablePush: false } })
    this.#session = session
    this.#sessions.add(session)
    this.#isConnected = false
    session.once('connect', () => {
      if (this.#session === session) this.#isConnected = true
    })
    // Each stream is told by itself.
    session.on('error', () => {})
    session.on('goaway', () => this.#forget(session))
    session.once('close', () => {
      this.#sessions.delete(session)
      this.#forget(session)
    })
    // A lock that nobody waits for must not keep the process.
    session.unref()
    return session
  }

  #forget(session: ClientHttp2Session): void {
    if (this.#session === session) this.#session = undefined
  }

  #hear(stream: ClientHttp2Stream, { onMessage, onEnd }: Ears): void {
    const frames = new FrameReader(onMessage)
    let failure: Error | undefined
    let isOver = false
    const wasConnected = this.#isConnected
    const end = (error: Error | undefined) => {
      if (isOver) return
      isOver = true
      onEnd(error)
    }
    stream.on('response', (headers) => {
      if (headers['grpc-status'] !== undefined) failure = statusOf(headers)
      else if (headers[':status'] !== 200 || !/^application\/grpc/.test(headers['content-type'] ?? '')) {
        end(new ConnectionError(NOT_ETCD, { unsent: false }))
      }
    })
    stream.on('data', (chunk: Buffer) => {
      if (isOver) return
      try {
        frames.push(chunk)
      } catch (error) {
        end(new ConnectionError(NOT_ETCD, { unsent: false, cause: error }))
        stream.close(constants.NGHTTP2_CANCEL)
      }
    })
    stream.on('trailers', (headers) => end(statusOf(headers)))
    stream.on('error', (error) => {
      failure = connectionErrorOf(error, { unsent: !wasConnected && !this.#isConnected })
    })
    stream.on('close', () => {
      // An error that is made and thrown away costs as much as the rest of the request.
      if (isOver) return
      end(
        failure ??
          new ConnectionError('The connection was lost.', { unsent: !wasConnected && !this.#isConnected }),
      )
    })
  }

  /** While something is under way for long: a stopped member keeps its connections open. */
  #watchPulse(): void {
    if (this.#pulse !== undefined) return
    this.#pulse = setInterval(() => {
      if (this.#conversations > 0) return this.#doubt()
      clearInterval(this.#pulse)
      this.#pulse = undefined
    }, PULSE_MS)
    this.#pulse.unref()
  }

  /** Drops the connection unless the member answers a ping. */
  #doubt(): void {
    const session = this.#session
    if (session === undefined || this.#isPinged) return
    if (!this.#isConnected) return session.destroy()
    this.#isPinged = true
    // Twice, because after a pause of this process a timer fires before what has arrived meanwhile is read.
    let timer = setTimeout(() => {
      timer = setTimeout(() => {
        this.#isPinged = false
        session.destroy()
      }, PULSE_MS / 4)
      timer.unref()
    }, PULSE_MS)
    timer.unref()
    const heard = () => {
      clearTimeout(timer)
      this.#isPinged = false
    }
    session.once('close', heard)
    const sent = session.ping(() => {
      session.off('close', heard)
      heard()
    })
    if (!sent) heard()
  }
}

/** A member that says nothing for a good second is left, long before a lease could end. */
const PULSE_MS = 1000

function statusOf(headers: IncomingHttpHeaders): StatusError | undefined {
  if (headers['grpc-status'] === '0') return undefined
  const message = String(headers['grpc-message'] ?? '')
  return new StatusError(Number(headers['grpc-status'] ?? 2), decoded(message))
}

function decoded(message: string): string {
  try {
    return decodeURIComponent(message)
  } catch {
    return message
  }
}

function connectionErrorOf(reason: Error, { unsent }: { unsent: boolean }): ConnectionError {
  // A stream that ends with its connection has the error of that as its cause.
  const error = reason.cause instanceof Error ? reason.cause : reason
  const code = 'code' in error ? String(error.code) : ''
  // The other side said something that is no HTTP/2.
  const isProtocol = code === 'ERR_HTTP2_ERROR' || code === 'ERR_HTTP2_SESSION_ERROR'
  return new ConnectionError(isProtocol ? NOT_ETCD : 'The connection failed.', { unsent, cause: error })
}
