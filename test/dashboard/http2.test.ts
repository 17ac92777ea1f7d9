import { once } from 'node:events'
import { type ClientHttp2Session, connect, createServer, type Http2Server } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createDashboard, type Dashboard } from '../../src/dashboard/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'

let locks: Locks
let dashboard: Dashboard
let server: Http2Server
let session: ClientHttp2Session
beforeEach(async () => {
  locks = createLocks(memoryStore(), { label: 'test' })
  dashboard = createDashboard(locks, { allowEvict: true })
  // Node.js makes the requests and responses of HTTP/2 look like those of HTTP/1.1, but not in their types.
  server = createServer(dashboard as unknown as Parameters<typeof createServer>[1]).listen(0, '127.0.0.1')
  await once(server, 'listening')
  session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
})
afterEach(async () => {
  await dashboard.close()
  session.destroy()
  server.close()
  await locks.close()
})

async function ask(headers: Readonly<Record<string, string>>, body?: string): Promise<[number, string]> {
  const stream = session.request(headers)
  stream.end(body)
  const [answer] = await once(stream, 'response')
  let text = ''
  for await (const part of stream.setEncoding('utf8')) text += part
  return [answer[':status'], text]
}

test('HTTP/2 is as good: it looks, listens and evicts, and knows foreign pages', async () => {
  const lease = await locks.acquire('k')
  const [found, page] = await ask({ ':path': '/' })
  expect([found, page]).toEqual([200, expect.stringContaining('<!doctype html>')])
  const [status, view] = await ask({ ':path': '/api/view?key=k' })
  expect([status, JSON.parse(view).holders]).toMatchObject([200, [{ id: lease.id }]])

  const live = session.request({ ':path': '/api/live?key=k' })
  let told = ''
  for await (const part of live.setEncoding('utf8')) {
    told += part
    if (told.includes(lease.id)) break
  }
  const evict = {
    ...{ ':path': '/api/evict', ':method': 'POST', 'content-type': 'application/json' },
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  }
  const body = JSON.stringify({ key: 'k', ids: [lease.id], reason: 'stuck' })
  expect((await ask({ ...evict, origin: 'http://evil.example' }, body))[0]).toBe(403)
  expect((await ask({ ':path': '/api/view', ':authority': 'evil.example' }))[0]).toBe(403)
  expect(await ask(evict, body)).toEqual([200, JSON.stringify({ evicted: [lease.id] })])
})

test('over HTTP/2, too, streams end when the dashboard is closed', async () => {
  const live = session.request({ ':path': '/api/live' })
  await once(live, 'response')
  live.resume()
  await dashboard.close()
  await once(live, 'close')
  const warnings: Error[] = []
  const warn = (warning: Error) => warnings.push(warning)
  process.on('warning', warn)
  expect((await ask({ ':path': '/' }))[0]).toBe(503)
  process.off('warning', warn)
  expect(warnings).toEqual([])
})
