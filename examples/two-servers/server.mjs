// Of several servers one sends mail. Needs: nothing, or the server at STORE. Run: node server.mjs 3001
import { createServer } from 'node:http'
import { connect } from 'holdfast'
import { createLockWorker } from 'holdfast/worker'

const port = Number(process.argv[2] ?? 3001)
const store = process.env['STORE'] ?? 'sqlite:./locks.db'
const locks = await connect(store, { label: `server ${port}`, ttl: '5s' })

const worker = createLockWorker(locks, 'mailer', {
  start(lease, { signal }) {
    console.log(`server ${port} works under fence ${lease.fence}`)
    const timer = setInterval(() => console.log(`server ${port} sends mail`), 1000)
    signal.addEventListener('abort', () => clearInterval(timer))
  },
  stop: (reason) => console.log(`server ${port} works no more: ${reason}`),
})
worker.stopOn(['SIGINT', 'SIGTERM'])
worker.subscribe(async ({ to }) => {
  if (to !== 'waiting') return
  const holder = await mailer().catch(() => 'not known')
  console.log(`server ${port} waits: the mailer is ${holder}`)
})

async function mailer() {
  for await (const room of locks.inspect({ prefix: 'mailer' })) {
    for (const { owner } of room.holders) return owner.label
  }
  return 'nobody'
}

createServer(async (_, response) => {
  try {
    response.end(`I am server ${port}, and ${worker.state}. The mailer is ${await mailer()}.\n`)
  } catch (error) {
    response.writeHead(503).end(`I am server ${port}, and ${worker.state}. Who the mailer is: ${error}\n`)
  }
}).listen(port, '127.0.0.1', () => {
  console.log(`server ${port} listens`)
  // Not before: a server that cannot listen would keep the key from those that can.
  worker.start()
})
