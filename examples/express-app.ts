// An Express application that pays invoices, each by one request at a time, and shuts down without cutting one off.
// Needs: express.
// Run: npx tsx examples/express-app.ts
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import express, { type NextFunction, type Request, type Response } from 'express'
import { connect } from 'holdfast'
import { asHttpError, createRequestLocks } from 'holdfast/http'

const locks = await connect(process.env['STORE'] ?? 'sqlite:./locks.db', { label: 'express' })
const requests = createRequestLocks(locks)
const paid = new Set<string>()

const app = express()
app.post('/invoices/:id/pay', async (request: Request<{ id: string }>, response: Response) => {
  const { id } = request.params
  const text = await requests.withLock(
    response,
    `invoice:${id}`,
    { wait: '2s' },
    async (lease, { signal }) => {
      if (paid.has(id)) return 'paid before'
      // The slow part is told when the client has gone, or the lease is lost.
      await sleep(100, undefined, { signal })
      lease.assertHeld()
      paid.add(id)
      return `paid under fence ${lease.fence}`
    },
  )
  response.send(text)
})
// Locks that are not of a request, limits: their errors get a status here. Express answers with it.
app.use((error: unknown, _request: Request, _response: Response, next: NextFunction) => {
  next(asHttpError(error))
})

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo

/** What a process does at SIGTERM. */
async function shutDown(): Promise<void> {
  const requestsEnded = requests.close()
  server.close()
  server.closeIdleConnections()
  await once(server, 'close')
  // The server does not wait for work whose client has gone.
  await requestsEnded
  await locks.close()
}

const pay = async (id: number) => {
  const headers = { connection: 'close' }
  const response = await fetch(`http://127.0.0.1:${port}/invoices/${id}/pay`, { method: 'POST', headers })
  return { status: response.status, text: await response.text() }
}

const answers = await Promise.all([pay(42), pay(42)])
console.log(answers.map(({ text }) => text).join(', and '))

// Somebody else has this one for longer than a client wants to wait.
const busy = await locks.acquire('invoice:43')
const waiting = pay(43)
await once(server, 'request')
const working = pay(44)
await once(server, 'request')
while (!paid.has('44') && !(await isTaken('invoice:44'))) await sleep(5)

const down = shutDown()
const [waited, worked] = await Promise.all([waiting, working])
console.log(`when it shuts down: ${waited.status} for who waits, ${worked.status} for who works`)
await busy.release()
await down

async function isTaken(key: string): Promise<boolean> {
  for await (const { holders } of locks.inspect({ prefix: key })) return holders.length > 0
  return false
}

if (!answers.some(({ text }) => text === 'paid before'))
  throw new Error(`Expected one to pay, got ${JSON.stringify(answers)}`)
if (waited.status !== 503 || worked.status !== 200) throw new Error('Expected 503 and 200')
