// Two instances of an Express application take payments. A client that hangs up and asks again pays once.
// Needs: express.
// Run: npx tsx examples/idempotency-key.ts
import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import express, { type NextFunction, type Request, type Response } from 'express'
import { connect } from 'holdfast'
import { createRequestLocks } from 'holdfast/http'

const begun = new AbortController()
const payments: { readonly user: string; readonly amount: number }[] = []

async function startInstance(label: string): Promise<{ url: string; stop: () => Promise<void> }> {
  const locks = await connect(process.env['STORE'] ?? 'sqlite:./locks.db', { label })
  const requests = createRequestLocks(locks)
  const app = express()
  app.use(express.json())
  // Whoever authenticates the request comes before. Here the client only says who it is.
  const scope = (request: Request) => String(request.headers['user'])
  const idempotent = requests.idempotent({ remember: '1h', required: true, scope })
  app.post('/payments', idempotent, async (request: Request, response: Response) => {
    begun.abort()
    await sleep(500)
    const payment = { user: scope(request), amount: request.body.amount as number }
    payments.push(payment)
    response.status(201).json({ id: payments.length, ...payment })
  })
  app.use(
    (error: Error & { status?: number }, _request: Request, response: Response, _next: NextFunction) => {
      response.status(error.status ?? 500).json({ error: error.message })
    },
  )
  const server: Server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = async () => {
    const requestsEnded = requests.close()
    server.close()
    server.closeAllConnections()
    await requestsEnded
    await locks.close()
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/payments`, stop }
}

const [one, other] = await Promise.all([startInstance('one'), startInstance('other')])
const key = `payment-${Date.now()}`

async function pay(url: string, amount: number, signal?: AbortSignal): Promise<string> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key, user: 'ada' },
    body: JSON.stringify({ amount }),
    ...(signal === undefined ? {} : { signal }),
  })
  return `${answer.status} ${answer.headers.get('idempotent-replayed') === 'true' ? 'again' : 'new'}`
}

const impatient = pay(one.url, 5, begun.signal).catch(() => 'hung up')
console.log('first:', await impatient)
console.log('at once, from the other instance:', await pay(other.url, 5))
while (payments.length === 0) await sleep(20)
let answer = await pay(other.url, 5)
while (answer.startsWith('409')) {
  await sleep(20)
  answer = await pay(other.url, 5)
}
console.log('later:', answer)
const changed = await pay(one.url, 500)
console.log('another amount under the same key:', changed)
await Promise.all([one.stop(), other.stop()])

if (payments.length !== 1) throw new Error(`Expected one payment, got ${payments.length}`)
if (answer !== '201 again') throw new Error(`Expected the stored answer, got ${answer}`)
if (changed !== '422 new') throw new Error(`Expected 422, got ${changed}`)
