import { once } from 'node:events'
import { createServer } from 'node:net'

/** A TCP port of 127.0.0.1 that was free a moment ago. Another process may take it before the caller does. */
export async function freePort(): Promise<number> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}
