// Passes connections on: node forwarder.mjs FROM=TO…, each of them the path of a Unix socket, or HOST:PORT. Says when it listens.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'

const addressOf = (text) => {
  if (text.includes('/')) return { path: text }
  const [host, port] = text.split(':')
  return { host, port: Number(port) }
}

for (const pair of process.argv.slice(2)) {
  const [from, to] = pair.split('=').map(addressOf)
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
    const far = connect({ ...to, allowHalfOpen: true, noDelay: true })
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      one.on('error', () => other.destroy())
      one.on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  server.listen(from)
  await once(server, 'listening')
}
process.on('disconnect', () => process.exit())
process.send('listening')
