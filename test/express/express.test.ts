import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type Express, type Response } from 'express'
import { expect, onTestFinished, test } from 'vitest'
import { createRequestLocks } from '../../src/http/index.ts'
import { aborted, call, gate, twoProcesses, untilRooms } from '../http/scene.ts'

async function serve(routes: (app: Express) => void): Promise<{ url: string; server: Server }> {
  const app = express()
  // In this environment Express's error handler does not log its answers.
  app.set('env', 'test')
  routes(app)
  const server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    if (!server.listening) return
    const closed = once(server, 'close')
    server.close()
    await closed
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
}

test('Express answers with the status of the error, and says when to come back', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const held = await other.acquire('pay')
  const { url } = await serve((app) => {
    app.get('/busy', (_, response: Response) =>
      requests.withLock(response, 'pay', { wait: 0 }, () => expect.unreachable()),
    )
    app.get('/closing', (_, response: Response) => {
      void requests.close()
      return requests.withLock(response, 'pay', () => expect.unreachable())
    })
  })
  expect((await call(`${url}/busy`).answer).status).toBe(409)
  const closing = await call(`${url}/closing`).answer
  expect([closing.status, closing.headers.get('retry-after')]).toEqual([503, '1'])
  await held.release()
})

test('a client of Express that hangs up gives up its place, or tells the work', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const begun = gate()
  const told = gate<Error>()
  const { url } = await serve((app) => {
    app.use(express.text())
    app.post('/', (_, response: Response) =>
      requests.withLock(response, 'pay', async (_, { signal }) => {
        begun.open()
        await aborted(signal).catch((error: Error) => told.open(error))
      }),
    )
  })
  const first = call(url, { method: 'POST', body: 'a body that is read' })
  await begun.opened
  const second = call(url, { method: 'POST', body: 'a body that is read' })
  await untilRooms(other, 'pay: 1 + 1')
  second.hangUp()
  await untilRooms(other, 'pay: 1 + 0')
  first.hangUp()
  expect(await told.opened).toMatchObject({ name: 'AbortError' })
  await untilRooms(other)
})

test('Express closes in the middle of requests, also when it is told twice: waiting ones are answered, running ones finish', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const begun = gate()
  const end = gate()
  const closed = gate<string>()
  const { url, server } = await serve((app) => {
    app.get('/', async (_, response: Response) => {
      const answer = await requests.withLock(response, 'pay', async (lease) => {
        begun.open()
        await end.opened
        return lease.state
      })
      response.send(answer)
    })
  })
  const working = call(url).answer
  await begun.opened
  const waiting = call(url).answer
  await untilRooms(other, 'pay: 1 + 1')
  // SIGTERM as docs/frameworks.md handles it. The signal comes twice.
  for (const signal of ['first', 'second']) {
    const requestsEnded = requests.close()
    server.close(async () => {
      await requestsEnded
      await locks.close()
      closed.open(signal)
    })
    server.closeIdleConnections()
  }
  expect((await waiting).status).toBe(503)
  end.open()
  expect(await (await working).text()).toBe('held')
  expect(await closed.opened).toBe('first')
})
