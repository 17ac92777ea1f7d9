import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * A TCP port of 127.0.0.1 that was free a moment ago. It is below 32768, where the ports begin that Linux gives to outgoing
 * connections. One of those could be taken before the caller uses it, or while a test restarts its server. And a client that finds
 * no server at such a port may be given the same port for its own end. Then it is connected to itself.
 *
 * Each worker of the test runner draws from a range of its own. Otherwise two workers could find the same port free.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const port = randomInt(first, last + 1)
    if (given.has(port) || !(await isFree(port))) continue
    given.add(port)
    return port
  }
  throw new Error(`Expected a free port between ${first} and ${last}, got none in ${MOST_TRIES} tries`)
}

const [FIRST, LAST] = [12_000, 32_000]
/** As in vitest.config.ts. */
const WORKERS = 4
const [first, last] = rangeOf(Number(process.env['VITEST_POOL_ID']))
const MOST_TRIES = 1000
/** By this process. A server that it starts may not have its port yet. */
const given = new Set<number>()

/** The whole range for a process that is none of these workers. */
function rangeOf(worker: number): readonly [first: number, last: number] {
  if (!(worker >= 1 && worker <= WORKERS)) return [FIRST, LAST]
  const size = Math.floor((LAST + 1 - FIRST) / WORKERS)
  return [FIRST + (worker - 1) * size, FIRST + worker * size - 1]
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)))
  })
}
