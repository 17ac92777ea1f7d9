// A server whose first argument is the URL of the store. The answers of `/hang` never come: its parent kills it.
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createRequestLocks } from '../../src/http/index.ts'
import { connect } from '../../src/index.ts'

const [store = ''] = process.argv.slice(2)
// Longer than a busy machine keeps the process from a renewal.
const locks = await connect(store, { ttl: '5s' })
const idempotent = createRequestLocks(locks).idempotent<IncomingMessage>({
  remember: '10m',
  scope: () => 'ada',
})
const server = createServer((request, response) => {
  idempotent(request, response, (error?: Error & { statusCode?: number }) => {
    if (error !== undefined) response.writeHead(error.statusCode ?? 500).end(error.message)
    else if (request.headers['hang'] === 'yes') process.send?.({ tag: 'hangs' })
    else response.end(`answered by ${process.pid}`)
  })
})
server.listen(0, '127.0.0.1', () =>
  process.send?.({ tag: 'listens', url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
)
