import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * A TCP port of 127.0.0.1 that was free a moment ago. It is below 32768, where the ports begin that Linux gives to outgoing
 * connections. One of those could be taken before the caller uses it, or while a test restarts its server. And a client that finds
 * no server at such a port may be given the same port for its own end. Then it is connected to itself.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const port = randomInt(FIRST, LAST + 1)
    if (given.has(port) || !(await isFree(port))) continue
    given.add(port)
    return port
  }
  throw new Error(`Expected a free port between ${FIRST} and ${LAST}, got none in ${MOST_TRIES} tries`)
}

const [FIRST, LAST] = [12_000, 32_000]
const MOST_TRIES = 1000
/** By this process. A server that it starts may not have its port yet. */
const given = new Set<number>()

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)))
  })
}
