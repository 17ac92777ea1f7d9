import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Registry } from 'prom-client'
import { connect } from '../../src/index.ts'
import { measureLocks } from '../../src/observe/prometheus/index.ts'

/** A process that campaigns for elections and answers GET with its metrics. Arguments: the URL of the store, and the elections. */
const [url = '', ...elections] = process.argv.slice(2)
const registry = new Registry()
measureLocks({ registry })
const locks = await connect(url, { ttl: '6s' })
for (const election of elections) {
  locks
    .election(election)
    .campaign(({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)))
    .catch(() => {})
}
const server = createServer(async (_, response) => {
  response.end(await registry.metrics())
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
