import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'

export interface Feed extends AsyncDisposable {
  readonly url: string
  /** Sends a short text to all who are connected. */
  send(text: string): void
  /** Ends all connections. */
  drop(): void
}

/** A WebSocket server (RFC 6455) that only speaks. */
export async function startFeed(): Promise<Feed> {
  const sockets = new Set<Duplex>()
  const server = createServer()
  server.on('upgrade', (request, socket) => {
    const accept = createHash('sha1')
      .update(request.headers['sec-websocket-key'] + SALT)
      .digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
    sockets.add(socket)
    // All that a reader sends is its wish to close.
    socket.on('data', () => socket.end(CLOSE))
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const drop = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    send(text) {
      for (const socket of sockets)
        socket.write(Buffer.concat([Buffer.from([0x81, text.length]), Buffer.from(text)]))
    },
    drop,
    async [Symbol.asyncDispose]() {
      drop()
      server.close()
      await once(server, 'close')
    },
  }
}

const SALT = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const CLOSE = Buffer.from([0x88, 0x00])
