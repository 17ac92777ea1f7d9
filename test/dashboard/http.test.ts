import { once } from 'node:events'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import fastify from 'fastify'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createDashboard, type Dashboard } from '../../src/dashboard/index.ts'
import type { DashboardJobs } from '../../src/dashboard/jobs-look.ts'
import { files } from '../../src/dashboard/page/files.generated.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { watchRooms } from '../../src/room-watch/room-watch.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { ask, listen, send, serve, type TestServer } from './dashboard-server.ts'

let store: Store
let locks: Locks
let dashboard: Dashboard
let server: TestServer
let looks: number

beforeEach(async () => {
  store = memoryStore()
  looks = 0
  const inspect = store.inspect.bind(store)
  store.inspect = (request) => {
    looks += 1
    return inspect(request)
  }
  locks = createLocks(store, { label: 'test' })
  dashboard = createDashboard(locks, { allowEvict: true })
  server = await serve(dashboard)
})
afterEach(async () => {
  await dashboard.close()
  await server[Symbol.asyncDispose]()
  await locks.close()
})

async function view(query = ''): Promise<Record<string, never>> {
  const { status, text } = await ask(server, { path: `/api/view?${query}` })
  expect(status).toBe(200)
  return JSON.parse(text)
}

function evict(body: object | string): ReturnType<typeof ask> {
  return ask(server, {
    path: '/api/evict',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
}

describe('the page', () => {
  test('is made of its own files alone, each with the headers that keep it so', async () => {
    for (const [path, type] of [
      ['/', 'text/html'],
      ['/main.js', 'text/javascript'],
      ['/dashboard.css', 'text/css'],
      ['/icon.svg', 'image/svg+xml'],
    ]) {
      const { status, headers } = await ask(server, { path: path ?? '' })
      expect([path, status, headers['content-type']]).toEqual([path, 200, `${type}; charset=utf-8`])
      expect(headers).toMatchObject({
        'x-content-type-options': 'nosniff',
        'x-frame-options': 'DENY',
        'referrer-policy': 'no-referrer',
        'cross-origin-resource-policy': 'same-origin',
        'cache-control': 'no-store',
      })
      const policy = headers['content-security-policy']
      expect(policy).toContain("default-src 'none'")
      expect(policy).toContain("script-src 'self'")
      expect(policy).toContain("frame-ancestors 'none'")
      expect(policy).not.toContain('unsafe')
    }
  })

  test('has no inline script or style, and asks no other host', () => {
    const html = files['index.html']
    expect(html).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\son\w+=|style=/)
    for (const [name, text] of Object.entries(files)) {
      expect([name, text.match(/https?:\/\/(?!www\.w3\.org\/2000\/svg)/g)]).toEqual([name, null])
      expect([name, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/.test(text)]).toEqual([
        name,
        false,
      ])
    }
  })

  test('names every one of its files, and no others are there', async () => {
    const named = Object.values(files).flatMap((text) =>
      Array.from(
        text.matchAll(/(?:href|src)="([\w-]+\.\w+)"|from '\.\/([\w-]+\.js)'/g),
        (found) => found[1] ?? found[2],
      ),
    )
    const all = Object.keys(files).filter((name) => name !== 'index.html')
    expect([...new Set(named)].sort()).toEqual(all.sort())
    for (const path of [
      '/nothing',
      '/api/nothing',
      '/../package.json',
      '/%2e%2e/x',
      '/__proto__',
      '/api',
      '*',
    ])
      expect([path, (await ask(server, { path })).status]).toEqual([path, 404])
  })

  test('answers other methods with which ones work', async () => {
    expect(await ask(server, { method: 'POST' })).toMatchObject({
      status: 405,
      headers: { allow: 'GET, HEAD' },
    })
    expect(await ask(server, { path: '/api/evict' })).toMatchObject({
      status: 405,
      headers: { allow: 'POST' },
    })
    expect(await ask(server, { path: '/api/view', method: 'DELETE' })).toMatchObject({ status: 405 })
    const head = await ask(server, { method: 'HEAD' })
    expect([head.status, head.text]).toEqual([200, ''])
  })
})

describe('mounted', () => {
  const expressApp = (handler: Dashboard) => express().use(express.json()).use('/locks', handler)

  test.each([
    ['in Express', async () => serve(expressApp(createDashboard(locks, { allowEvict: true })))],
    [
      'in plain http',
      async () => {
        const mounted = createDashboard(locks, { allowEvict: true, path: '/locks' })
        return serve((request, response) => {
          if (request.url?.startsWith('/locks')) mounted(request, response)
          else response.writeHead(418).end()
        })
      },
    ],
    [
      'in Fastify',
      async () => {
        const mounted = createDashboard(locks, { allowEvict: true, path: '/locks' })
        const app = fastify()
        for (const url of ['/locks', '/locks/*']) {
          app.route({
            method: ['GET', 'POST'],
            url,
            // The handler comes before Fastify reads a body.
            onRequest: (request, reply) => {
              reply.hijack()
              mounted(request.raw, reply.raw)
            },
            handler: () => {},
          })
        }
        await app.ready()
        return serve((request, response) => app.routing(request, response))
      },
    ],
  ])('%s it works with and without the slash, and evicts', async (_, start) => {
    await using mounted = await start()
    const bare = await ask(mounted, { path: '/locks?x=1' })
    expect([bare.status, bare.headers.location]).toEqual([303, './locks/'])
    const token = await ask(mounted, { path: '/locks?token=abc' })
    expect([token.status, token.headers.location]).toEqual([303, './locks/?token=abc'])
    expect((await ask(mounted, { path: '/locks/' })).text).toBe(files['index.html'])
    expect((await ask(mounted, { path: '/locks/main.js' })).text).toBe(files['main.js'])
    expect((await ask(mounted, { path: '/locks/nothing' })).status).toBe(404)
    const lease = await locks.acquire('k', { ttl: '4s' })
    const looked = JSON.parse((await ask(mounted, { path: '/locks/api/view?key=k' })).text)
    expect(looked.holders).toMatchObject([{ id: lease.id, fence: String(lease.fence) }])
    const evicted = await ask(mounted, {
      path: '/locks/api/evict',
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key: 'k', ids: [lease.id], reason: 'stuck' }),
    })
    expect([evicted.status, JSON.parse(evicted.text)]).toEqual([200, { evicted: [lease.id] }])
    const stream = await listen(mounted.port, '/locks/api/live?key=k')
    expect(await stream.next()).toMatchObject({ key: 'k' })
    stream.leave()
  })

  test('no address leads away', async () => {
    const mounted = await serve(createDashboard(locks, { path: '/locks' }))
    for (const path of ['//evil.example/locks', '/locks/../..//evil.example', '/other', '/locksmith', '//']) {
      const { status, headers } = await ask(mounted, { path })
      expect([path, status, headers.location]).toEqual([path, 404, undefined])
    }
    await mounted[Symbol.asyncDispose]()
  })
})

describe('a view', () => {
  test('has a page of keys with holders, times and the queue', async () => {
    const lease = await locks.semaphore('permits', 5).acquire({ units: 2 })
    await locks.readWrite('doc').acquireRead()
    const giveUp = new AbortController()
    const holder = await locks.acquire('busy')
    const waiting = locks.acquire('busy', { signal: giveUp.signal }).catch(() => {})
    const {
      rows,
      site,
      store: state,
    } = (await view()) as unknown as { rows: object[]; site: object; store: object }
    expect(rows).toMatchObject([
      { key: 'busy', holding: 1, waiting: 1, holders: [{ mode: 'mutex', fence: String(holder.fence) }] },
      { key: 'doc', holders: [{ mode: 'shared' }] },
      {
        key: 'permits',
        holders: [{ mode: '2 of 5', state: 'held', owner: { pid: process.pid, label: 'test' } }],
      },
    ])
    expect(site).toEqual({
      ...{ title: 'Locks', prefix: '', hasJobs: false },
      ...{ allowEvict: true, allowJobChanges: false },
    })
    expect(state).toMatchObject({ tag: 'present' })
    giveUp.abort()
    await waiting
    await lease.release()
  })

  test('of 10,000 keys has a hundred, and every page its own', async () => {
    await Promise.all(
      Array.from({ length: 10_000 }, (_, n) => locks.acquire(`k${String(n).padStart(5, '0')}`)),
    )
    const first = (await view()) as unknown as { rows: { key: string }[]; matching: number; pages: number }
    expect([first.rows.length, first.matching, first.pages]).toEqual([100, 10_000, 100])
    expect((await view('page=99')) as unknown).toMatchObject({ page: 99, rows: { 0: { key: 'k09900' } } })
    expect((await view('page=1000')) as unknown).toMatchObject({ page: 99 })
    expect((await view('search=K0123')) as unknown).toMatchObject({
      matching: 10,
      rows: { 0: { key: 'k01230' } },
    })
    const { text } = await ask(server, { path: '/api/view' })
    expect(text.length).toBeLessThan(60_000)
  })

  test('is filtered by key and by owner, by contention and by election, and sorted', async () => {
    const other = createLocks(store, { label: 'Backup "nightly"' })
    await other.acquire('a')
    await locks.acquire('b')
    const giveUp = new AbortController()
    const waiting = [1, 2].map(() => locks.acquire('a', { signal: giveUp.signal }).catch(() => {}))
    waiting.push(locks.acquire('b', { signal: giveUp.signal }).catch(() => {}))
    await locks.acquire('c')
    let leave = () => {}
    const leading = other.election('mailer').campaign(
      { value: 'http://10.0.0.3' },
      () =>
        new Promise<void>((resolve) => {
          leave = resolve
        }),
    )
    const keys = async (query: string) =>
      ((await view(query)) as unknown as { rows: { key: string }[] }).rows.map(({ key }) => key)
    await until('it leads', async () => (await keys('show=elections')).length === 1)
    expect(await keys('')).toEqual(['a', 'b', 'c', 'mailer'])
    expect(await keys('search=backup%20%22night')).toEqual(['a', 'mailer'])
    expect(await keys('search=host')).not.toContain('undefined')
    expect(await keys('show=contended')).toEqual(['a', 'b'])
    expect((await keys('sort=waiting')).slice(0, 2)).toEqual(['a', 'b'])
    expect(await keys('sort=toString')).toEqual(['a', 'b', 'c', 'mailer'])
    expect((await view('show=elections')) as unknown).toMatchObject({
      rows: [{ key: 'mailer', isElection: true, holders: [{ value: 'http://10.0.0.3' }] }],
    })
    leave()
    await leading
    giveUp.abort()
    await Promise.all(waiting)
    await other.close()
  })

  test('of names that are long, hostile or no JSON is short and valid', async () => {
    const long = createLocks(store, { label: 'x'.repeat(500) })
    const key = '<img src=x onerror=alert(1)>\n\u202e\u0000'.replace('\u0000', '')
    await Promise.all(Array.from({ length: 100 }, (_, n) => long.acquire(`${key}${n}`)))
    const { text } = await ask(server, { path: '/api/view' })
    expect(text.length).toBeLessThan(100_000)
    const { rows } = JSON.parse(text)
    expect(rows[0].key).toContain('<img src=x onerror=alert(1)>\n\u202e')
    expect(rows[0].holders[0].owner.label).toMatch(/^x{200}… \(500 characters\)$/)
    await long.close()
  })

  test('of rows of megabytes that a stranger has written is short, and keeps nothing of them', async () => {
    const acquire = store.acquire.bind(store)
    const text = 'x'.repeat(2 ** 21)
    let row = 0
    store.acquire = (ticket, atMs) => {
      row += 1
      const owner = row % 2 === 0 ? text : JSON.stringify({ host: 'h', pid: 1, label: text })
      return acquire({ ...ticket, owner }, atMs)
    }
    for (let each = 0; each < 50; each += 1) await locks.acquire(`k${each}`)
    for (const query of ['', 'search=xxx', 'key=k1', 'view=contention']) {
      const { status, text: answer } = await ask(server, { path: `/api/view?${query}` })
      expect(status).toBe(200)
      expect(answer.length).toBeLessThan(50 * 2000)
    }
    const watch = watchRooms(locks)
    await until('it has looked', () => watch.snapshot.at > 0)
    watch.stop()
    expect(watch.snapshot.rooms).toHaveLength(50)
    for (const { holders } of watch.snapshot.rooms)
      expect(JSON.stringify(holders[0]?.owner).length).toBeLessThan(20_000)
  })

  test('of contention has the keys that tickets wait for, with their holders', async () => {
    const giveUp = new AbortController()
    await locks.acquire('calm')
    await locks.acquire('busy')
    const waiting = [1, 2].map(() => locks.acquire('busy', { signal: giveUp.signal }).catch(() => {}))
    expect((await view('view=contention')) as unknown).toMatchObject({
      totals: [{ keys: 2, waiting: 2 }],
      rows: [
        {
          ...{ key: 'busy', averageWaiting: 2, mostWaiting: 2, waiting: 2, handOvers: 0, holding: 1 },
          ...{ holders: [{ owner: { label: 'test' } }], trend: [[expect.any(Number), 1, 2]] },
        },
      ],
    })
    giveUp.abort()
    await Promise.all(waiting)
  })

  test('of a key has its history', async () => {
    const stream = await listen(server.port, '/api/live?key=k')
    await stream.next()
    const first = await locks.acquire('k')
    const seen = async (done: (view: Record<string, unknown>) => boolean) => {
      for (;;) {
        const next = await stream.next()
        if (done(next)) return next
      }
    }
    await seen(({ holding }) => holding === 1)
    await first.release()
    const last = await seen(({ holding }) => holding === 0)
    expect(last['holds']).toMatchObject([{ id: first.id, fence: String(first.fence), end: 'released' }])
    expect(last['samples']).toMatchObject([
      [expect.any(Number), 1, 0],
      [expect.any(Number), 0, 0],
    ])
    stream.leave()
  })
})

describe('evicting', () => {
  test('evicts waiters before holders, so that the key is granted to none of them', async () => {
    const lease = await locks.acquire('k')
    const waiting = Promise.allSettled(Array.from({ length: 3 }, () => locks.acquire('k')))
    await until('they wait', async () => (await locks.peek('k'))?.queue.length === 3)
    const granted: string[] = []
    locks.on('acquired', ({ id }) => granted.push(id))
    // The requests of a batch need not arrive in order.
    const evictAt = store.evict.bind(store)
    store.evict = async (request) => {
      if (request.id !== lease.id) await new Promise((resolve) => setTimeout(resolve, 50))
      return evictAt(request)
    }
    const ids = [lease.id, ...((await locks.peek('k'))?.queue.map(({ id }) => id) ?? [])]
    expect((await evict({ key: 'k', ids, reason: 'stuck' })).status).toBe(200)
    expect((await waiting).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
    expect([granted, await locks.peek('k')]).toEqual([[], null])
  })

  test('takes the key away, tells the holder why, and the history says so', async () => {
    // Longer than a busy machine keeps this process from a renewal.
    const lease = await locks.acquire('k', { ttl: '6s' })
    await view('key=k')
    expect((await evict({ key: 'k', ids: [lease.id], reason: 'stuck since monday' })).status).toBe(200)
    await until('its holder knows', () => lease.state === 'lost')
    expect(() => lease.assertHeld()).toThrow('stuck since monday')
    await until('it is seen', async () => (await view('key=k'))['holding'] === 0)
    expect((await view('key=k'))['holds'] as unknown).toMatchObject([
      { end: 'evicted', reason: 'stuck since monday' },
    ])
  })

  test('with a key, a ticket or a reason that is none is refused in one sentence', async () => {
    const lease = await locks.acquire('k')
    for (const body of [
      '',
      '{',
      '1',
      'null',
      { key: 1, ids: ['a'], reason: 'x' },
      { key: 'k', ids: ['a'] },
      { key: 'k', ids: ['a'], reason: '' },
      // A database would refuse these texts later, and the dashboard would report that the store is away.
      { key: 'k', ids: ['a'], reason: 'a\0b' },
      { key: 'k', ids: ['a'], reason: 'a\ud800' },
      { key: 'a\0b', ids: ['a'], reason: 'x' },
      { key: 'k'.repeat(1025), ids: ['a'], reason: 'x' },
      // Nobody is meant, and not everybody.
      { key: 'k', reason: 'x' },
      { key: 'k', id: lease.id, reason: 'x' },
      ...[1, [], [1]].map((ids) => ({ key: 'k', ids, reason: 'x' })),
    ]) {
      const { status, text } = await evict(body)
      expect([body, status]).toEqual([body, 400])
      expect(JSON.parse(text).message).toMatch(/^Expected .*\.$/)
    }
    expect((await evict({ key: 'k', ids: [lease.id], reason: 'x'.repeat(20_000) })).status).toBe(400)
    expect((await view('key=k'))['holding']).toBe(1)
  })

  test('of more than a person writes is refused in a sentence, and the connection is as good as before', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = (body: string) =>
      request({
        ...{ host: '127.0.0.1', port: server.port, path: '/api/evict', method: 'POST', agent },
        headers: { 'content-type': 'application/json' },
      }).end(body)
    const [refused] = await once(
      send(JSON.stringify({ key: 'k', reason: 'x'.repeat(20_000_000) })),
      'response',
    )
    let text = ''
    for await (const part of refused) text += part
    expect([refused.statusCode, text]).toEqual([400, expect.stringContaining('at most 16384 bytes')])
    const next = send(JSON.stringify({ key: 'nobody', ids: ['a'], reason: 'x' }))
    const [answer] = await once(next, 'response')
    expect([answer.statusCode, next.reusedSocket]).toEqual([200, true])
    answer.resume()
    agent.destroy()
  })

  test('outside of the prefix that is shown is refused', async () => {
    const shown = await serve(createDashboard(locks, { allowEvict: true, prefix: 'mine:' }))
    await locks.acquire('mine:1')
    await locks.acquire('other')
    const { rows } = JSON.parse((await ask(shown, { path: '/api/view' })).text)
    expect(rows.map(({ key }: { key: string }) => key)).toEqual(['mine:1'])
    const answer = await ask(shown, {
      path: '/api/evict',
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key: 'other', ids: ['a'], reason: 'x' }),
    })
    expect(answer.status).toBe(400)
    await shown[Symbol.asyncDispose]()
  })

  test('while the store is away is reported as unknown', async () => {
    store.evict = () => {
      throw new Error('connect ECONNREFUSED')
    }
    await locks.acquire('k')
    const { status, text } = await evict({ key: 'k', ids: ['a'], reason: 'x' })
    expect(status).toBe(503)
    expect(JSON.parse(text).message).not.toBe('')
  })
})

describe('the open pages', () => {
  test('are told of every look, and the store is not asked before the first page opens', async () => {
    expect(looks).toBe(0)
    const stream = await listen(server.port, '/api/live')
    expect(stream.headers['content-type']).toBe('text/event-stream; charset=utf-8')
    expect(stream.headers['cache-control']).toContain('no-transform')
    const first = await stream.next()
    const second = await stream.next()
    expect(Number(second['at'])).toBeGreaterThan(Number(first['at']))
    stream.leave()
  })

  test('share one watch of the store, and are forgotten when they leave', async () => {
    const streams = await Promise.all(Array.from({ length: 20 }, () => listen(server.port, '/api/live')))
    await Promise.all(streams.map((stream) => stream.next()))
    const before = looks
    await Promise.all(streams.map((stream) => stream.next()))
    expect(looks - before).toBeLessThan(5)
    for (const stream of streams) stream.leave()
    await until('all are gone', () => server.inFlight() === 0)
  })

  test('are no more than 250 at once', async () => {
    const streams = await Promise.all(Array.from({ length: 250 }, () => listen(server.port, '/api/live')))
    expect((await ask(server, { path: '/api/live' })).status).toBe(503)
    for (const stream of streams) stream.leave()
    await until('there is room again', async () => {
      const again = await listen(server.port, '/api/live')
      again.leave()
      return again.status === 200
    })
  })

  test('get nothing piled up when they do not read', async () => {
    // Each message is larger than the buffers of the sockets.
    const owner = JSON.stringify({ host: 'h', pid: 1, label: '\u{1f512}'.repeat(2000) })
    const acquire = store.acquire.bind(store)
    store.acquire = (ticket, atMs) => acquire({ ...ticket, owner }, atMs)
    await Promise.all(Array.from({ length: 300 }, () => locks.readWrite('k').acquireRead()))
    const pending: (() => number)[] = []
    const watched = await serve((request, response) => {
      pending.push(() => response.writableLength)
      dashboard(request, response)
    })
    const sent = send(watched.port, { path: '/api/live?key=k' })
    sent.once('response', (response) => response.pause())
    sent.on('error', () => {})
    // An eviction makes the dashboard look at once.
    const look = () => evict({ key: 'nobody', ids: ['a'], reason: 'x' })
    await until('it does not take more', async () => {
      await look()
      return (pending[0]?.() ?? 0) > 100_000
    })
    const size = pending[0]?.() ?? 0
    const before = looks
    await until('there were more looks', async () => {
      await look()
      return looks > before + 2
    })
    expect(pending[0]?.()).toBeLessThanOrEqual(size)
    sent.destroy()
    await watched[Symbol.asyncDispose]()
  })

  test('are told that the store is away, and that it is back', async () => {
    await locks.acquire('k')
    const stream = await listen(server.port, '/api/live')
    await stream.next()
    const inspect = store.inspect.bind(store)
    store.inspect = () => {
      throw new Error('connect ECONNREFUSED')
    }
    const next = async (tag: string) => {
      for (;;) {
        const told = (await stream.next()) as { store: { tag: string } }
        if (told.store.tag === tag) return told
      }
    }
    expect(await next('away')).toMatchObject({ rows: [{ key: 'k' }] })
    store.inspect = inspect
    await next('present')
    stream.leave()
  })

  test('are told that the store is silent, and a program is, too', async () => {
    store.inspect = () => new Promise(() => {})
    const stream = await listen(server.port, '/api/live')
    const away = { tag: 'away', message: expect.stringContaining('no answer') }
    expect(await stream.next()).toMatchObject({ at: 0, rows: [], store: away })
    expect(await view()).toMatchObject({ at: 0, store: away })
    stream.leave()
  })

  test('are told that the locks were closed, and a program is, too', async () => {
    await locks.acquire('k')
    const stream = await listen(server.port, '/api/live')
    await stream.next()
    await locks.close()
    const closed = { tag: 'away', message: expect.stringContaining('closed') }
    for (;;) {
      const told = (await stream.next()) as { store: { tag: string } }
      if (told.store.tag === 'present') continue
      expect(told.store).toMatchObject(closed)
      break
    }
    expect(await view()).toMatchObject({ store: closed })
    stream.leave()
    const late = await listen(server.port, '/api/live')
    expect(await late.next()).toMatchObject({ store: closed })
    late.leave()
  })

  test('do not keep a server that is to end, though they come back over connections that are open', async () => {
    const handler = createDashboard(locks)
    const ending = createServer(handler).listen(0, '127.0.0.1')
    await once(ending, 'listening')
    const { port } = ending.address() as AddressInfo
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const get = (path: string) => request({ host: '127.0.0.1', port, path, agent }).end()
    const [first] = await once(get('/api/view'), 'response')
    await once(first.resume(), 'end')
    await handler.close()
    const ended = once(ending, 'close')
    // Browsers come back like this while they still have a connection.
    const back = get('/api/live')
    const [answer] = await once(back, 'response')
    expect([answer.statusCode, answer.headers.connection]).toEqual([503, 'close'])
    answer.resume()
    ending.close()
    await ended
    agent.destroy()
  })

  test('are let go when the dashboard is closed, after which the store is not asked any more', async () => {
    const stream = await listen(server.port, '/api/live')
    await stream.next()
    await dashboard.close()
    await expect(
      (async () => {
        for (;;) await stream.next()
      })(),
    ).rejects.toThrow()
    const before = looks
    await new Promise((resolve) => setTimeout(resolve, 1200))
    expect(looks).toBe(before)
  })

  test('evict nobody if the dashboard is closed while the request arrives', async () => {
    const { id } = await locks.acquire('k')
    const body = JSON.stringify({ key: 'k', ids: [id], reason: 'hangs' })
    const headers = { 'content-type': 'application/json', 'content-length': String(body.length) }
    const { port } = server
    const sent = request({
      host: '127.0.0.1',
      port,
      path: '/api/evict',
      method: 'POST',
      headers,
      agent: false,
    })
    sent.write(body.slice(0, 5))
    await until('the request has begun', () => server.inFlight() === 1)
    await dashboard.close()
    sent.end(body.slice(5))
    const [answer] = await once(sent, 'response')
    answer.resume()
    expect([answer.statusCode, answer.headers.connection]).toEqual([503, 'close'])
    expect(looks).toBe(0)
    expect((await locks.peek('k'))?.holders.length).toBe(1)
  })

  test.each(['/api/live?view=jobs', '/api/view?view=jobs'])(
    'are refused if the dashboard is closed while the jobs are read for %s, and no watch starts',
    async (path) => {
      let answerList: (() => void) | undefined
      const list = async () => {
        await new Promise<void>((resolve) => (answerList = resolve))
        return { jobs: [], next: null }
      }
      const jobs = { list, count: async () => [], countOverTime: async () => [] } as unknown as DashboardJobs
      const closing = createDashboard(locks, { jobs })
      await using other = await serve(closing)
      const answer = ask(other, { path })
      await until('the list is asked for', () => answerList !== undefined)
      await closing.close()
      answerList?.()
      expect((await answer).status).toBe(503)
      expect(looks).toBe(0)
    },
  )
})

test('no more viewers are let in than there may be, also if all of them wait for their first view', async () => {
  let answerList: (() => void) | undefined
  const list = async () => {
    await new Promise<void>((resolve) => (answerList = resolve))
    return { jobs: [], next: null }
  }
  const jobs = { list, count: async () => [], countOverTime: async () => [] } as unknown as DashboardJobs
  const full = createDashboard(locks, { jobs })
  await using other = await serve(full)
  const opened = Array.from({ length: 260 }, () => listen(other.port, '/api/live?view=jobs'))
  await until('all wait', () => answerList !== undefined && other.inFlight() === 260)
  answerList?.()
  const streams = await Promise.all(opened)
  const count = (status: number) => streams.filter((stream) => stream.status === status).length
  expect([count(200), count(503)]).toEqual([250, 10])
  for (const stream of streams) stream.leave()
  await full.close()
})
