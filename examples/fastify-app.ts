// A Fastify application that pays invoices, each by one request at a time, whichever instance it reaches.
// Needs: fastify.
// Run: npx tsx examples/fastify-app.ts
import { EventEmitter, once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { type FastifyInstance, fastify } from 'fastify'
import { holdfast } from 'holdfast/fastify'

const store = process.env['STORE'] ?? 'sqlite:./locks.db'
const paid = new Set<string>()
const events = new EventEmitter()

async function startInstance(label: string): Promise<FastifyInstance> {
  const app = fastify()
  await app.register(holdfast, { store, label })
  app.post<{ Params: { id: string } }>('/invoices/:id/pay', (request) => {
    const { id } = request.params
    return request.withLock(`invoice:${id}`, { wait: '2s' }, async (lease, { signal }) => {
      if (paid.has(id)) return { by: label, paid: 'before' }
      events.emit('paying', id)
      // The slow part is told when the client has gone, or the lease is lost.
      await sleep(100, undefined, { signal })
      lease.assertHeld()
      paid.add(id)
      return { by: label, paid: `now, under fence ${lease.fence}` }
    })
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  return app
}

const [a, b] = await Promise.all([startInstance('a'), startInstance('b')])

async function pay(app: FastifyInstance, id: number): Promise<{ by: string; paid: string }> {
  const headers = { connection: 'close' }
  const response = await fetch(`${app.listeningOrigin}/invoices/${id}/pay`, { method: 'POST', headers })
  return (await response.json()) as { by: string; paid: string }
}

// Both are asked at once: one pays, the other waits and sees that it is done.
const answers = await Promise.all([pay(a, 42), pay(b, 42)])
for (const answer of answers) console.log(`instance ${answer.by}: paid ${answer.paid}`)

// A server that is closed in the middle of a request answers it first.
const answering = pay(a, 43)
await once(events, 'paying')
await Promise.all([a.close(), b.close()])
console.log(`while instance a closed: paid ${(await answering).paid}`)

const before = answers.filter((answer) => answer.paid === 'before')
if (before.length !== 1) throw new Error(`Expected one to pay, got ${JSON.stringify(answers)}`)
