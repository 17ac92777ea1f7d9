import { once } from 'node:events'
import {
  type ClientRequest,
  createServer,
  type IncomingHttpHeaders,
  type RequestListener,
  request,
} from 'node:http'
import type { AddressInfo } from 'node:net'

/** An HTTP server around a handler, on a free loopback port. */
export interface TestServer extends AsyncDisposable {
  readonly port: number
  /** The address, with a slash at its end. */
  readonly url: string
  /** How many answers are still open. */
  inFlight(): number
}

export async function serve(handler: RequestListener): Promise<TestServer> {
  const answers = new Set<object>()
  const server = createServer((request, response) => {
    answers.add(response)
    response.once('close', () => answers.delete(response))
    handler(request, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port,
    url: `http://127.0.0.1:${port}/`,
    inFlight: () => answers.size,
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
    },
  }
}

export interface Asked {
  readonly path?: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

export interface Answered {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
}

/** Asks as any program may, with any headers. `fetch` does not allow every Host and Origin. */
export async function ask({ port }: { readonly port: number }, asked: Asked = {}): Promise<Answered> {
  const sent = send(port, asked)
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const part of response.setEncoding('utf8')) text += part
  return { status: response.statusCode, headers: response.headers, text }
}

export function send(port: number, { path = '/', method = 'GET', headers = {}, body }: Asked): ClientRequest {
  const sent = request({ host: '127.0.0.1', port, path, method, headers, agent: false })
  sent.end(body)
  return sent
}

/** The messages of a stream, as a browser gets them. */
export interface Stream {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  next(): Promise<Record<string, unknown>>
  leave(): void
}

export async function listen(
  port: number,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Stream> {
  const sent = send(port, { path, headers })
  const [response] = await once(sent, 'response')
  const parts = response.setEncoding('utf8')[Symbol.asyncIterator]()
  let text = ''
  return {
    status: response.statusCode,
    headers: response.headers,
    async next() {
      for (;;) {
        const end = text.indexOf('\n\n')
        if (end !== -1) {
          const message = text.slice(0, end)
          text = text.slice(end + 2)
          if (message.startsWith('data: ')) return JSON.parse(message.slice(6))
        } else {
          const { done, value } = await parts.next()
          if (done) throw new Error('The stream has ended.')
          text += value
        }
      }
    },
    leave: () => sent.destroy(),
  }
}
