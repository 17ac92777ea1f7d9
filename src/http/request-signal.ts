import { expected } from '../base/arguments.ts'

/**
 * The part that the `ServerResponse` of Node.js, the response of Express, `reply.raw` of Fastify, and the response of
 * HTTP/2 have in common.
 */
export interface OutgoingResponse {
  /** Whether the whole answer was written. */
  readonly writableEnded: boolean
  /** Whether the response was given up. */
  readonly destroyed?: boolean
  /** Null until it is this one's turn on its connection. */
  readonly socket?: object | null
  /** The request, whose socket says whether the client has gone. */
  readonly req?: { readonly socket?: RequestSocket | null }
  /** The stream of HTTP/2. */
  readonly stream?: { readonly destroyed?: boolean }
  /** Calls `listener` when the response is over or its connection is closed. */
  once(event: 'close', listener: () => void): unknown
}

interface RequestSocket {
  readonly destroyed?: boolean
  once(event: 'close', listener: () => void): unknown
}

/**
 * A signal that aborts if the client goes away before it has its answer: it hung up, timed out, or its connection broke. It does
 * not abort once the response was ended. Each call for one response returns the same signal. While a large request body is not
 * read yet, Node.js does not see that the client has gone.
 *
 * ```ts
 * import { createServer } from 'node:http'
 * import { requestSignal } from 'holdfast/http'
 *
 * createServer(async (_, response) => {
 *   try {
 *     const answer = await fetch('https://slow.example/', { signal: requestSignal(response) })
 *     response.end(await answer.text())
 *   } catch {
 *     response.writeHead(502).end()
 *   }
 * })
 * ```
 *
 * @throws {InvalidArgumentError} when it is no response.
 */
export function requestSignal(response: OutgoingResponse): AbortSignal {
  if (!isResponse(response)) {
    throw expected('response', 'the response of a request', response)
  }
  const known = signals.get(response)
  if (known !== undefined) return known
  const controller = new AbortController()
  signals.set(response, controller.signal)
  if (response.writableEnded) return controller.signal
  // Not the 'close' of the request, which also comes when all of it was read.
  const onClose = () => {
    if (!response.writableEnded) controller.abort(clientGone())
  }
  response.once('close', onClose)
  // A pipelined request is read while the one before it is answered, and its response is not told when both are over.
  const connection = response.socket === null ? response.req?.socket : undefined
  if (connection) {
    const waiting = waitingAt(connection)
    waiting.add(onClose)
    response.once('close', () => waiting.delete(onClose))
  }
  if (response.destroyed || response.stream?.destroyed || connection?.destroyed) onClose()
  return controller.signal
}

export function isResponse(value: unknown): value is OutgoingResponse {
  const { once, writableEnded } = (value ?? {}) as Partial<OutgoingResponse>
  return typeof once === 'function' && typeof writableEnded === 'boolean'
}

/**
 * All requests share one listener: a client may pipeline more requests than a socket has room for without a warning.
 */
function waitingAt(socket: RequestSocket): Set<() => void> {
  const known = sockets.get(socket)
  if (known !== undefined) return known
  const waiting = new Set<() => void>()
  sockets.set(socket, waiting)
  socket.once('close', () => {
    for (const onClose of waiting) onClose()
  })
  return waiting
}

const sockets = new WeakMap<RequestSocket, Set<() => void>>()
const signals = new WeakMap<OutgoingResponse, AbortSignal>()

/** The status is for logs only, as in nginx, because the client has gone. */
function clientGone(): DOMException {
  const error = new DOMException('The client went away before it was answered.', 'AbortError')
  return Object.assign(error, { statusCode: 499 })
}
