import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'

/**
 * The locks of a server, and those of another process at the same store. No ticket may be left when the test is over.
 */
export function twoProcesses(): { locks: Locks; other: Locks } {
  const store = memoryStore()
  const [locks, other] = [createLocks(store), createLocks(store)]
  onTestFinished(async () => {
    await until('every key is free', async () => (await roomsOf(other)).length === 0)
    await Promise.all([locks.close(), other.close()])
  })
  return { locks, other }
}

export async function roomsOf(locks: Locks): Promise<string[]> {
  const rooms: string[] = []
  for await (const { key, holders, queue } of locks.inspect()) {
    rooms.push(`${key}: ${holders.length} + ${queue.length}`)
  }
  return rooms
}

/** Resolves when the rooms are as the text says. `pay: 1 + 2` is one holder and two waiters of the key `pay`. */
export async function untilRooms(locks: Locks, ...rooms: string[]): Promise<void> {
  await until(`the rooms are ${rooms}`, async () => String(await roomsOf(locks)) === String(rooms))
}

export interface HttpScene {
  readonly server: Server
  readonly url: string
}

/** A server whose handler may fail, as the handler of a framework may. */
export async function serve(
  handler: (request: IncomingMessage, response: ServerResponse) => Promise<unknown>,
): Promise<HttpScene> {
  const server = createServer((request, response) => {
    handler(request, response).catch((error: Error & { statusCode?: number }) => {
      response.statusCode = error.statusCode ?? 500
      response.end(error.message)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
  })
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

/** A request of a client that may hang up. It has a connection of its own, because fetch would keep the connection. */
export function call(
  url: string,
  { method = 'GET', body }: { readonly method?: string; readonly body?: string } = {},
): { answer: Promise<Response>; hangUp: () => void } {
  const asked = request(url, { method, agent: false, headers: { 'content-type': 'text/plain' } })
  const answer = new Promise<Response>((resolve, reject) => {
    asked.on('error', reject)
    asked.on('response', (response) => {
      const headers = Object.entries(response.headers).map(([name, value]) => [name, String(value)] as const)
      const { statusCode: status = 0 } = response
      text(response).then(
        (body) => resolve(new Response(body, { status, headers: Object.fromEntries(headers) })),
        reject,
      )
    })
  })
  answer.catch(() => {})
  asked.end(body)
  return { answer, hangUp: () => asked.destroy() }
}

/** An event that happens once, and that a test can wait for. */
export function gate<T = void>(): { readonly opened: Promise<T>; open: (value: T) => void } {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** Rejects with the reason of the signal, also if it has aborted before. */
export async function aborted(signal: AbortSignal): Promise<never> {
  if (!signal.aborted) await once(signal, 'abort')
  throw signal.reason
}
