import { once } from 'node:events'
import { type FastifyInstance, type FastifyReply, fastify } from 'fastify'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { describe, expect, onTestFinished, test } from 'vitest'
import { holdfast } from '../../src/fastify/index.ts'
import { asHttpError, type ServerLocksOptions } from '../../src/http/index.ts'
import { createLocks } from '../../src/index.ts'
import { createLimit } from '../../src/limits/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { aborted, call, gate, roomsOf, twoProcesses, untilRooms } from '../http/scene.ts'

async function serve(
  options: ServerLocksOptions,
  routes: (app: FastifyInstance) => void,
): Promise<{ app: FastifyInstance; url: string }> {
  const app = fastify()
  onTestFinished(() => app.close())
  await app.register(holdfast, options)
  // The routes are in a scope of their own, as those of plugins are. The decorators are there, too.
  await app.register(async (scope) => routes(scope))
  return { app, url: await app.listen({ port: 0, host: '127.0.0.1' }) }
}

describe('the Fastify plugin', () => {
  test('holds a lock while a request is answered, with the options of withLock', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve({ locks }, (app) => {
      app.get('/:key', async (request) => {
        const { key } = request.params as { key: string }
        const rooms = await request.withLock(key, { wait: '1s' }, () => roomsOf(other))
        return [...rooms, app.locks === locks]
      })
    })
    expect(await (await call(`${url}/pay`).answer).json()).toEqual(['pay: 1 + 0', true])
    expect(await roomsOf(other)).toEqual([])
  })

  test('opens the store of a URL, and closes it with the server', async () => {
    const { app, url } = await serve({ store: 'memory:', label: 'billing' }, (app) => {
      app.get('/', (request) => request.withLock('pay', (lease) => lease.key))
    })
    expect(await (await call(url).answer).text()).toBe('pay')
    const { locks } = app
    await app.close()
    expect(await errorOf(locks.acquire('pay'))).toMatchObject({ code: 'closed' })
  })

  test('leaves locks open that were given to it', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve({ locks }, () => {})
    await app.close()
    expect(await locks.withLock('pay', () => 'open')).toBe('open')
  })

  test('answers 409 to a request that waited in vain, in the words of the error', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const { url } = await serve({ locks }, (app) => {
      app.get('/', (request) => request.withLock('pay', { wait: 20 }, () => expect.unreachable()))
    })
    const response = await call(url).answer
    expect(response.status).toBe(409)
    expect(await response.json()).toMatchObject({
      error: 'Conflict',
      code: 'acquire-timeout',
      message: expect.stringMatching(/^"pay" was not free within \d+ ms/),
    })
    await held.release()
  })

  test('answers 503 when the store is away, and says to come back', async () => {
    const store = new ScriptedStore(memoryStore())
    const locks = createLocks(store)
    onTestFinished(() => locks.close())
    store.always('fail')
    const { url } = await serve({ locks }, (app) => {
      app.get('/', (request) => request.withLock('pay', { wait: 100 }, () => expect.unreachable()))
    })
    const response = await call(url).answer
    expect(response.status).toBe(503)
    expect(response.headers.get('retry-after')).toBe('1')
    store.always('answer')
  })

  test('answers with what the application has chosen instead', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const { url } = await serve({ locks, statusCodes: { 'acquire-timeout': 423 } }, (app) => {
      app.get('/', (request) => request.withLock('pay', { wait: 0 }, () => expect.unreachable()))
    })
    expect((await call(url).answer).status).toBe(423)
    await held.release()
  })

  test('leaves the errors of the work, and other locks, to the error handler of the application', async () => {
    const { locks } = twoProcesses()
    const limit = createLimit(locks, 'api', {
      concurrency: 1,
      rate: new RateLimiterMemory({ points: 1, duration: 60 }),
    })
    const { url } = await serve({ locks }, (app) => {
      app.setErrorHandler((error) => {
        throw asHttpError(error)
      })
      app.get('/broken', (request) =>
        request.withLock('pay', () => {
          throw Object.assign(new Error('teapot'), { statusCode: 418 })
        }),
      )
      app.get('/limited', () => limit.run('ada', { wait: 0 }, () => 'ran'))
    })
    expect((await call(`${url}/broken`).answer).status).toBe(418)
    expect((await call(`${url}/limited`).answer).status).toBe(200)
    const limited = await call(`${url}/limited`).answer
    expect([limited.status, limited.headers.get('retry-after')]).toEqual([429, '60'])
  })

  test('gives up the place in the queue of a client that hangs up', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const { url } = await serve({ locks }, (app) => {
      app.post('/', (request) => request.withLock('pay', () => expect.unreachable()))
    })
    const { hangUp } = call(url, { method: 'POST', body: 'a body that is read' })
    await untilRooms(other, 'pay: 1 + 1')
    hangUp()
    await untilRooms(other, 'pay: 1 + 0')
    await held.release()
  })

  test('tells the work of a client that hangs up, and gives the key back when it has ended', async () => {
    const { locks, other } = twoProcesses()
    const begun = gate()
    const told = gate<Error>()
    const { url } = await serve({ locks }, (app) => {
      app.get('/', (request) =>
        request.withLock('pay', async (_, { signal }) => {
          begun.open()
          return aborted(signal).catch((error: Error) => told.open(error))
        }),
      )
    })
    const { hangUp } = call(url)
    await begun.opened
    expect(await roomsOf(other)).toEqual(['pay: 1 + 0'])
    hangUp()
    expect(await told.opened).toMatchObject({ name: 'AbortError' })
    await untilRooms(other)
  })

  test('tells the work of a handler that takes too long', async () => {
    const { locks, other } = twoProcesses()
    const told = gate<Error>()
    const { url } = await serve({ locks }, (app) => {
      app.get('/', { handlerTimeout: 100 }, (request) =>
        request.withLock('pay', (_, { signal }) => aborted(signal).catch((error: Error) => told.open(error))),
      )
    })
    expect((await call(url).answer).status).toBe(503)
    expect(await told.opened).toMatchObject({ code: 'FST_ERR_HANDLER_TIMEOUT' })
    await untilRooms(other)
  })

  test('may take further keys under a handlerTimeout while the server shuts down', async () => {
    const { locks, other } = twoProcesses()
    const [begun, end] = [gate(), gate()]
    const { app, url } = await serve({ locks }, (app) => {
      app.get('/', { handlerTimeout: 60_000 }, (request) =>
        request.withLock('order', async () => {
          begun.open()
          await end.opened
          return request.withLock('invoice', (lease) => lease.key)
        }),
      )
    })
    const answer = call(url).answer
    await begun.opened
    const waiting = call(url).answer
    await untilRooms(other, 'order: 1 + 1')
    const closed = app.close()
    expect((await waiting).status).toBe(503)
    end.open()
    expect(await (await answer).text()).toBe('invoice')
    await closed
  })

  test('goes on under a handlerTimeout when the body was read, until the client hangs up', async () => {
    const { locks, other } = twoProcesses()
    const [begun, told] = [gate(), gate<Error>()]
    const { url } = await serve({ locks }, (app) => {
      app.post('/:how', { handlerTimeout: 60_000 }, (request) =>
        request.withLock('pay', async (_, { signal: early }) => {
          // Node.js closes a request whose body was read. Then Fastify aborts `request.signal`.
          if (!request.raw.closed) await once(request.raw, 'close')
          return request.withLock('ship', async (_, { signal: late }) => {
            if ((request.params as { how: string }).how === 'answered') return [early.aborted, late.aborted]
            begun.open()
            return aborted(AbortSignal.any([early, late])).catch((error: Error) => told.open(error))
          })
        }),
      )
    })
    const post = { method: 'POST', body: 'a body that is read' }
    expect(await (await call(`${url}/answered`, post).answer).json()).toEqual([false, false])
    const { hangUp } = call(`${url}/left`, post)
    await begun.opened
    hangUp()
    expect(await told.opened).toMatchObject({ name: 'AbortError', statusCode: 499 })
    await untilRooms(other)
  })

  test('closes in the middle of requests: waiting ones are answered, and running ones finish first', async () => {
    const { other } = twoProcesses()
    const begun = gate()
    const end = gate()
    const atEnd = gate<string>()
    const { app, url } = await serve({ store: 'memory:' }, (app) => {
      app.get('/', (request) =>
        request.withLock('pay', { wait: Number.POSITIVE_INFINITY }, async (lease) => {
          begun.open()
          await end.opened
          atEnd.open(lease.state)
          return 'done'
        }),
      )
    })
    const working = call(url).answer
    await begun.opened
    const waiting = call(url).answer
    await untilRooms(app.locks, 'pay: 1 + 1')
    const closed = app.close()
    expect((await waiting).status).toBe(503)
    expect(await outcomeOf(closed)).toBe('pending')
    end.open()
    expect(await (await working).text()).toBe('done')
    expect(await atEnd.opened).toBe('held')
    await closed
    expect(await roomsOf(other)).toEqual([])
  })

  test('closes behind the work of a client that has gone, which may still write', async () => {
    const begun = gate()
    const told = gate()
    const end = gate()
    const atEnd = gate<string>()
    const { app, url } = await serve({ store: 'memory:' }, (app) => {
      app.get('/', (request) =>
        request.withLock('pay', async (lease, { signal }) => {
          signal.addEventListener('abort', () => told.open())
          begun.open()
          await end.opened
          atEnd.open(lease.state)
        }),
      )
    })
    const { hangUp } = call(url)
    await begun.opened
    hangUp()
    await told.opened
    const closed = app.close()
    expect(await outcomeOf(closed)).toBe('pending')
    end.open()
    expect(await atEnd.opened).toBe('held')
    await closed
  })

  test('ends with the request also where no route is, and in hooks', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const app = fastify()
    onTestFinished(() => app.close())
    app.setNotFoundHandler((request) => request.withLock('pay', () => expect.unreachable()))
    await app.register(holdfast, { locks })
    app.addHook('onRequest', async (request) => {
      if (request.url === '/hook') await request.withLock('pay', () => expect.unreachable())
    })
    app.get('/hook', () => expect.unreachable())
    const url = await app.listen({ port: 0, host: '127.0.0.1' })
    for (const path of ['hook', 'nowhere']) {
      const { hangUp } = call(`${url}/${path}`)
      await untilRooms(other, 'pay: 1 + 1')
      hangUp()
      await untilRooms(other, 'pay: 1 + 0')
    }
    await held.release()
  })

  test('refuses to lock in a hook from before the plugin, which would not end with its request', async () => {
    const { locks } = twoProcesses()
    const app = fastify()
    onTestFinished(() => app.close())
    app.addHook('onRequest', async (request) => {
      await request.withLock('pay', () => expect.unreachable())
    })
    await app.register(holdfast, { locks })
    app.get('/', () => expect.unreachable())
    expect((await app.inject('/')).json()).toMatchObject({
      statusCode: 500,
      message:
        'Expected `holdfast` to be registered before the hooks that call `request.withLock`, got a request that it has not seen.',
    })
  })

  test('holds the key while a reply is written by hand, and tells when its client goes in the middle', async () => {
    const { locks, other } = twoProcesses()
    const told = gate<Error>()
    const { url } = await serve({ locks }, (app) => {
      app.get('/:how', (request, reply) =>
        request.withLock('pay', async (_, { signal }) => {
          reply.hijack()
          reply.raw.writeHead(200)
          reply.raw.write(String(await roomsOf(other)))
          if ((request.params as { how: string }).how === 'whole') return void reply.raw.end()
          await aborted(signal).catch((error: Error) => told.open(error))
        }),
      )
    })
    expect(await (await call(`${url}/whole`).answer).text()).toBe('pay: 1 + 0')
    await untilRooms(other)
    const broken = call(`${url}/broken`)
    await untilRooms(other, 'pay: 1 + 0')
    broken.hangUp()
    expect(await told.opened).toMatchObject({ name: 'AbortError' })
    await untilRooms(other)
  })

  test('answers once where the lock is lost: with 500, or with what was sent before', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve({ locks }, (app) => {
      app.get('/:when', (request, reply) =>
        request.withLock('pay', async (_, { signal }) => {
          if ((request.params as { when: string }).when === 'sent') reply.send('sent before')
          await other.evictAll('pay', { reason: 'test' })
          return aborted(signal)
        }),
      )
    })
    const lost = await call(`${url}/lost`).answer
    expect([lost.status, await lost.json()]).toEqual([500, expect.objectContaining({ code: 'lease-lost' })])
    const sent = await call(`${url}/sent`).answer
    expect([sent.status, await sent.text()]).toEqual([200, 'sent before'])
    await untilRooms(other)
  })

  test('is another lock for each request of one connection, and two of one request are never in a circle', async () => {
    const { locks, other } = twoProcesses()
    const { url } = await serve({ locks }, (app) => {
      app.get('/:first/:second', (request) => {
        const { first, second } = request.params as { first: string; second: string }
        return request.withLock(first, () => request.withLock(second, { wait: '10s' }, (lease) => lease.key))
      })
    })
    const crossed = await Promise.all(
      Array.from({ length: 10 }, (_, turn) => fetch(`${url}/${turn % 2 === 0 ? 'a/b' : 'b/a'}`)),
    )
    const statuses = crossed.map(({ status }) => status)
    // The request that closes a circle gets an error; the others go on.
    expect(statuses.filter((status) => status !== 200 && status !== 500)).toEqual([])
    expect(statuses).toContain(200)
    expect((await (await fetch(`${url}/a/a`)).json()) as object).toMatchObject({ code: 'deadlock' })
    await untilRooms(other)
  })

  test('may be registered in two scopes of one server, which have locks of their own', async () => {
    const [one, two] = [twoProcesses(), twoProcesses()]
    const app = fastify()
    onTestFinished(() => app.close())
    for (const [prefix, { locks }] of Object.entries({ one, two })) {
      await app.register(
        async (scope) => {
          await scope.register(holdfast, { locks })
          scope.get('/', (request) =>
            request.withLock('pay', async () => [
              ...(await roomsOf(one.other)),
              '|',
              ...(await roomsOf(two.other)),
            ]),
          )
        },
        { prefix },
      )
    }
    expect((await app.inject('/one')).json()).toEqual(['pay: 1 + 0', '|'])
    expect((await app.inject('/two')).json()).toEqual(['|', 'pay: 1 + 0'])
  })

  test('serves injected requests', async () => {
    const { locks } = twoProcesses()
    const { app } = await serve({ locks }, (app) => {
      app.get('/', (request) =>
        request.withLock('pay', async (_, { signal }) => ({ aborted: signal.aborted })),
      )
    })
    expect((await app.inject('/')).json()).toEqual({ aborted: false })
  })
})

test('a repetition that was answered by a time-out while it waited leaves the key free', async () => {
  const { locks, other } = twoProcesses()
  const held = await other.acquire('idempotency:ada:k')
  let runs = 0
  const { url } = await serve({ locks }, (app) => {
    const idempotent = app.idempotent({ remember: 50, scope: () => 'ada', wait: '1m' })
    app.post('/', { handlerTimeout: 1000, preHandler: idempotent }, async () => `run ${++runs}`)
  })
  const post = () => fetch(url, { method: 'POST', headers: { 'idempotency-key': 'k' } })
  expect((await post()).status).toBe(503)
  await held.release()
  await untilRooms(other)
  expect(await (await post()).text()).toBe('run 1')
})

test.each<[string, (reply: FastifyReply) => unknown]>([
  [
    'returns another answer behind it',
    async (reply) => {
      reply.send({ paid: 1 })
      return { paid: 2 }
    },
  ],
  [
    'fails behind it',
    async (reply) => {
      reply.send({ paid: 1 })
      throw new Error('the metrics are away')
    },
  ],
  ['sends twice', (reply) => void reply.send({ paid: 1 }).send({ paid: 2 })],
])('the first answer of a handler that %s reaches the client', async (_, handler) => {
  const { locks } = twoProcesses()
  const { url } = await serve({ locks }, (app) => {
    const idempotent = app.idempotent({ remember: 50, scope: () => 'ada' })
    app.post('/', { preHandler: idempotent }, (_, reply) => handler(reply))
  })
  const post = () => fetch(url, { method: 'POST', headers: { 'idempotency-key': 'k' } })
  expect(await (await post()).json()).toEqual({ paid: 1 })
})

describe('bad input', () => {
  const locks = createLocks(memoryStore())

  test.each<[string, ServerLocksOptions]>([
    ['`store` to be a URL such as redis://localhost:6379, or `locks` to be given, got neither.', {}],
    ['either `locks` or `store`, got both.', { locks, store: 'memory:' }],
    ['the options of locks that exist to be given where they are made, got `ttl`.', { locks, ttl: '5s' }],
    ['`url` to begin with memory:', { store: 'mysql://localhost' }],
    ['`ttl` to be a duration', { store: 'memory:', ttl: 'soon' }],
    ['`locks` to be what createLocks or connect returns', { locks: {} as never }],
    ["`statusCodes['closed']` to be a whole number", { store: 'memory:', statusCodes: { closed: 1 } }],
  ])('expected %s', async (message, options) => {
    const app = fastify()
    onTestFinished(() => app.close())
    const error = await errorOf(Promise.resolve(app.register(holdfast, options).ready()))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(`Expected ${message}`)
  })

  test('a server that has something else under these names is refused', async () => {
    const app = fastify()
    onTestFinished(() => app.close())
    app.decorateRequest('withLock', (() => {}) as never)
    expect(
      (await errorOf(Promise.resolve(app.register(holdfast, { store: 'memory:' }).ready()))).message,
    ).toBe(
      'Expected `holdfast` to be registered once, on a server without `locks`, `idempotent` and `request.withLock`, got one that has them.',
    )
  })

  test('a second registration is refused', async () => {
    const app = fastify()
    onTestFinished(() => app.close())
    await app.register(holdfast, { store: 'memory:' })
    const twice = Promise.resolve(app.register(holdfast, { store: 'memory:' }).ready())
    expect((await errorOf(twice)).message).toBe(
      'Expected `holdfast` to be registered once, on a server without `locks`, `idempotent` and `request.withLock`, got one that has them.',
    )
  })
})
