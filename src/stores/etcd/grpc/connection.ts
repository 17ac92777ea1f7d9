import type { Socket } from 'node:net'
import { createSecureContext } from 'node:tls'
import type { ChannelCredentials, Client, Metadata } from '@grpc/grpc-js'
import { absent, notInstalled } from '../../../base/packages.ts'
import type { EtcdTls } from '../options.ts'
import { ConnectionError, NOT_ETCD, StatusError } from './failures.ts'
import { findSockets } from './find-sockets.ts'

/** Hears a stream of messages. */
export interface StreamListener {
  onMessage(message: Buffer): void
  /** Once, however it ends; undefined: as it should. */
  onEnd(error: Error | undefined): void
}

export interface MemberStream {
  send(message: Buffer): void
  /** `onEnd` is not called any more. */
  close(): void
}

/**
 * One connection to one member, from its first request to its end. A {@link Member} makes a new one when it has ended.
 *
 * This file alone knows the library that speaks gRPC, and what its errors mean.
 */
export interface MemberConnection {
  /** When something came from the member last, by the monotonic clock. */
  readonly heardAt: number
  /** How many bytes have come, also of replies that are not complete. 0 if the library does not show its sockets. */
  readonly bytesRead: number
  /** Whether the connection is made and can be used. */
  readonly isReady: boolean
  /** One request and one reply. Returns how to give up, after which `done` is not called. */
  ask(request: MemberRequest, done: (error: Error | undefined, reply?: Buffer) => void): () => void
  /** A stream of messages in both directions. */
  openStream(request: Omit<MemberRequest, 'message'>, listener: StreamListener): MemberStream
  /** Ends at once, with all that is under way. */
  close(): void
}

export interface MemberRequest {
  readonly path: string
  readonly message: Buffer
  /** Empty: none. */
  readonly token: string
}

export interface Dialling {
  /** `http://host:port` or `https://host:port`. */
  readonly url: string
  readonly tls: EtcdTls
  /** The member has said goodbye, or is gone. It gets no more requests here. Those under way may still be answered. */
  onLeft(): void
  /** No socket is left. */
  onClosed(): void
}

export type Dial = (dialling: Dialling) => MemberConnection

/** @throws {InvalidArgumentError} when the package is not installed. */
export async function loadDial(): Promise<Dial> {
  const grpc = await packageGrpc()
  if (grpc === undefined) throw notInstalled('@grpc/grpc-js')
  return (dialling) => new GrpcConnection(grpc, dialling)
}

async function packageGrpc(): Promise<Grpc | undefined> {
  try {
    return await import('@grpc/grpc-js')
  } catch (error) {
    return absent(error)
  }
}

class GrpcConnection implements MemberConnection {
  heardAt = Number.NEGATIVE_INFINITY
  readonly #grpc: Grpc
  readonly #dialling: Dialling
  readonly #client: Client
  readonly #sockets = new Set<Socket>()
  readonly #stopFinding: () => void
  readonly #leavers = new Set<() => void>()
  #metadata: { readonly token: string; readonly metadata: Metadata } | undefined
  /** The last error of the socket, with its code: the library keeps only the text. */
  #failure: unknown
  /** Requests under way. */
  #asked = 0
  #isWatched = false
  #isLeft = false
  #isClosed = false

  constructor(grpc: Grpc, dialling: Dialling) {
    this.#grpc = grpc
    this.#dialling = dialling
    const { protocol, hostname, port } = new URL(dialling.url)
    const { servername, ...certificates } = dialling.tls
    const credentials =
      protocol === 'https:'
        ? grpc.credentials.createFromSecureContext(createSecureContext(certificates))
        : grpc.credentials.createInsecure()
    this.#attend(credentials)
    const target = `dns:${hostname}:${port === '' ? DEFAULT_PORTS[protocol] : port}`
    this.#client = new grpc.Client(target, credentials, {
      ...OPTIONS,
      ...(servername === undefined ? {} : { 'grpc.ssl_target_name_override': servername }),
    })
    const connect = () => void this.#client.getChannel().getConnectivityState(true)
    this.#stopFinding = findSockets(connect, (socket) => this.#adopt(socket))
  }

  get bytesRead(): number {
    let bytes = 0
    for (const socket of this.#sockets) bytes += socket.bytesRead
    return bytes
  }

  get isReady(): boolean {
    const { READY } = this.#grpc.connectivityState
    return !this.#isClosed && this.#client.getChannel().getConnectivityState(false) === READY
  }

  ask(
    { path, message, token }: MemberRequest,
    done: (error: Error | undefined, reply?: Buffer) => void,
  ): () => void {
    this.#asked += 1
    let isOver = false
    const end = (): boolean => {
      if (isOver) return false
      isOver = true
      this.#asked -= 1
      this.#closeIfLeft()
      return true
    }
    const call = this.#client.makeUnaryRequest(
      path,
      same,
      same,
      message,
      this.#with(token),
      (error, reply) => {
        if (!end()) return
        this.#heard()
        done(error === null ? undefined : this.#errorOf(error), reply)
      },
    )
    return () => {
      if (end()) call.cancel()
    }
  }

  openStream({ path, token }: Omit<MemberRequest, 'message'>, listener: StreamListener): MemberStream {
    const stream = this.#client.makeBidiStreamRequest(path, same, same, this.#with(token))
    let isOver = false
    const end = (): boolean => {
      if (isOver) return false
      isOver = true
      this.#leavers.delete(leave)
      return true
    }
    // Otherwise the member might keep the stream open for ever, on a connection that gets no more requests.
    const leave = () => {
      if (!end()) return
      stream.cancel()
      listener.onEnd(undefined)
    }
    this.#leavers.add(leave)
    stream.on('data', (message: Buffer) => {
      if (isOver) return
      this.#heard()
      try {
        listener.onMessage(message)
      } catch (cause) {
        if (!end()) return
        stream.cancel()
        listener.onEnd(new ConnectionError(NOT_ETCD, { cause }))
      }
    })
    // The event `status` always follows, with the same reason.
    stream.on('error', () => {})
    stream.on('status', (status) => {
      if (end()) listener.onEnd(status.code === 0 ? undefined : this.#errorOf(status))
    })
    return {
      send(message) {
        if (!isOver) stream.write(message)
      },
      close() {
        if (end()) stream.cancel()
      },
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#stopFinding()
    this.#client.close()
    // The library says goodbye and waits for a reply, which a member that hangs does not give.
    for (const socket of this.#sockets) socket.destroy()
    if (this.#sockets.size === 0) this.#dialling.onClosed()
  }

  #heard(): void {
    this.heardAt = performance.now()
    if (this.#isWatched || this.#isClosed) return
    this.#isWatched = true
    const { READY } = this.#grpc.connectivityState
    if (!this.isReady) return this.#left()
    this.#client.getChannel().watchConnectivityState(READY, Number.POSITIVE_INFINITY, () => this.#left())
  }

  #left(): void {
    this.#isLeft = true
    this.#dialling.onLeft()
    for (const leave of this.#leavers) leave()
    // The library is in the middle of closing the connection itself.
    setImmediate(() => this.#closeIfLeft())
  }

  #closeIfLeft(): void {
    if (this.#isLeft && this.#asked === 0) this.close()
  }

  /** `hasleader`: watches of a member that has lost its leader end, instead of being silent. */
  #with(token: string): Metadata {
    if (this.#metadata?.token === token) return this.#metadata.metadata
    const metadata = new this.#grpc.Metadata()
    metadata.set('hasleader', 'true')
    if (token !== '') metadata.set('token', token)
    this.#metadata = { token, metadata }
    return metadata
  }

  /**
   * Takes the sockets from the library. It keeps the process alive as long as a stream is open, and a watch is always open; and
   * it drops the codes of errors.
   */
  #attend(credentials: ChannelCredentials): void {
    // A private method of the library. Without it everything works, except that the process is kept alive and the codes are lost.
    if (typeof credentials._createSecureConnector !== 'function') return
    const create = credentials._createSecureConnector.bind(credentials)
    credentials._createSecureConnector = (...given) => {
      const connector = create(...given)
      const connect = connector.connect.bind(connector)
      connector.connect = async (socket) => {
        this.#adopt(socket)
        this.#stopFinding()
        try {
          const result = await connect(socket)
          this.#adopt(result.socket)
          this.#failure = undefined
          return result
        } catch (error) {
          this.#failure = error
          throw error
        }
      }
      return connector
    }
  }

  #adopt(socket: Socket): void {
    if (this.#sockets.has(socket)) return
    this.#sockets.add(socket)
    socket.unref()
    // A socket that has not begun to connect has nothing to unref yet.
    process.nextTick(() => socket.unref())
    // An idle store must not keep the process alive. A request that a caller awaits does that, by the timer of its time limit.
    socket.ref = () => socket
    socket.on('error', (error) => {
      this.#failure = error
    })
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#isClosed && this.#sockets.size === 0) this.#dialling.onClosed()
    })
    if (this.#isClosed) socket.destroy()
  }

  #errorOf({ code, details }: { readonly code: number; readonly details: string }): Error {
    if (ETCD.test(details)) return new StatusError(code, details)
    const cause = this.#failure ?? new StatusError(code, details)
    if (FOREIGN.test(details)) return new ConnectionError(NOT_ETCD, { cause })
    if (code === this.#grpc.status.UNAVAILABLE)
      return new ConnectionError('The connection failed.', { cause })
    return new StatusError(code, details)
  }
}

type Grpc = typeof import('@grpc/grpc-js')

const same = (message: Buffer): Buffer => message

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' }

const OPTIONS = {
  // Pings, only while something is under way. etcd allows one in five seconds, and hangs up on clients that send more.
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 2000,
  // Enough for a room of two hundred thousand tickets. A longer message is not of etcd.
  'grpc.max_receive_message_length': 64 * 1024 ** 2,
  // Without this, two stores would share a connection, and closing one would end the other's.
  'grpc.use_local_subchannel_pool': 1,
  // Neither the environment nor the name server may change where it connects.
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.enable_channelz': 0,
}

/** How etcd's own errors begin. */
const ETCD = /^etcdserver: /
/** How the library says that the server does not speak gRPC. A proxy that answers 429, 502, 503 or 504 may do so later. */
const FOREIGN =
  /Received HTTP status code (?!429|502|503|504)|Received message larger than max|Too many responses received|No message received|Call ended without gRPC status|Protocol error/
