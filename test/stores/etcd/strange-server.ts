import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo } from 'node:net'

export interface StrangeServer extends AsyncDisposable {
  readonly url: string
  /** The open sessions, the oldest first. */
  readonly sessions: ReadonlySet<ServerHttp2Session>
  /** Handles a request. */
  answer: (stream: ServerHttp2Stream, path: string, headers: IncomingHttpHeaders) => void
  /** Accepts no more connections; open ones stay. */
  refuse(): void
  close(): Promise<void>
}

/** An HTTP/2 server that gives answers that etcd never gives. */
export async function startStrangeServer(answer: StrangeServer['answer']): Promise<StrangeServer> {
  const server = createServer()
  const sessions = new Set<ServerHttp2Session>()
  server.on('session', (session) => {
    sessions.add(session)
    session.on('error', () => {})
    session.once('close', () => sessions.delete(session))
  })
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    strange.answer(stream, String(headers[':path']), headers)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = async () => {
    server.close()
    for (const session of sessions) session.destroy()
  }
  const strange: StrangeServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sessions,
    answer,
    refuse: () => void server.close(),
    close,
    [Symbol.asyncDispose]: close,
  }
  return strange
}

/** A message in the frame of gRPC. */
export function framed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** Answers a request, in these pieces. */
export function reply(stream: ServerHttp2Stream, chunks: readonly Uint8Array[]): void {
  stream.respond(GRPC, { waitForTrailers: true })
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  for (const chunk of chunks) stream.write(chunk)
  stream.end()
}

export const GRPC = { ':status': 200, 'content-type': 'application/grpc' }
