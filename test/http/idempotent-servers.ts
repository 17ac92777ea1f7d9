// One route, POST /payments, in each framework: the body says what the handler does, the header `user` whose key it is.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { Controller, Module, Post, Req, Res } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import express from 'express'
import { fastify } from 'fastify'
import { onTestFinished } from 'vitest'
import { holdfast } from '../../src/fastify/index.ts'
import {
  createRequestLocks,
  type HttpErrorFields,
  type IdempotencyOptions,
  type IncomingRequest,
} from '../../src/http/index.ts'
import type { Locks } from '../../src/index.ts'
import { HoldfastModule, Idempotent } from '../../src/nestjs/index.ts'

/** What the handler answers, for a request. */
export type Handler = (request: IncomingRequest) => Promise<Answer>
export interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: unknown
}

/** The options of the route, but for those that all routes here share. */
export type RouteOptions = Partial<IdempotencyOptions>

const SHARED = {
  remember: '1h',
  scope: ({ headers }: IncomingRequest) => String(headers['user'] ?? 'ada'),
} as const

/** A header that comes from before the handler, as that of a tracing middleware. */
const requestId = () => crypto.randomUUID()

/** Each starts a server, and returns its URL. */
export const servers: Readonly<
  Record<string, (locks: Locks, handler: Handler, options?: RouteOptions) => Promise<string>>
> = {
  async 'node:http'(locks, handler, options = {}) {
    const idempotent = createRequestLocks(locks).idempotent<IncomingRequest>({ ...SHARED, ...options })
    const server = createServer(async (request, response) => {
      const parsed = Object.assign(request, { body: await json(request).catch(() => undefined) })
      response.setHeader('x-request-id', requestId())
      idempotent(parsed, response, async (error?: Error & Partial<HttpErrorFields>) => {
        if (error !== undefined)
          return response.writeHead(error.statusCode ?? 500, error.headers).end(error.message)
        const { status, headers, body } = await handler(parsed)
        return response
          .writeHead(status, { 'content-type': 'application/json', ...headers })
          .end(JSON.stringify(body))
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/payments`
  },

  async Express(locks, handler, options = {}) {
    const requests = createRequestLocks(locks)
    const app = express()
    app.use((_, response, next) => {
      response.setHeader('x-request-id', requestId())
      next()
    })
    app.use(express.json())
    app.post('/payments', requests.idempotent({ ...SHARED, ...options }), async (request, response) => {
      const { status, headers = {}, body } = await handler(request)
      response.status(status).set(headers).json(body)
    })
    const server = app.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/payments`
  },

  async Fastify(locks, handler, options = {}) {
    const app = fastify({ forceCloseConnections: true })
    onTestFinished(() => app.close())
    await app.register(holdfast, { locks })
    app.addHook('onRequest', (_, reply, done) => {
      reply.header('x-request-id', requestId())
      done()
    })
    app.post<{ Body: object }>(
      '/payments',
      { preHandler: app.idempotent({ ...SHARED, ...options }) },
      async (request, reply) => {
        const { status, headers = {}, body } = await handler(request)
        return reply.code(status).headers(headers).send(body)
      },
    )
    return `${await app.listen({ port: 0, host: '127.0.0.1' })}/payments`
  },

  'NestJS on Express': (locks, handler, options) => nest(new ExpressAdapter(), locks, handler, options),
  'NestJS on Fastify': (locks, handler, options) => nest(new FastifyAdapter(), locks, handler, options),
}

async function nest(
  adapter: ExpressAdapter | FastifyAdapter,
  locks: Locks,
  handler: Handler,
  options: RouteOptions = {},
): Promise<string> {
  @Controller('payments')
  class Payments {
    @Post()
    @Idempotent({ ...SHARED, ...options })
    async pay(@Req() request: IncomingRequest, @Res({ passthrough: true }) response: NestResponse) {
      const { status, headers = {}, body } = await handler(request)
      response.status(status)
      for (const [name, value] of Object.entries(headers)) response.header(name, value)
      return body
    }
  }

  @Module({ imports: [HoldfastModule.forRoot({ locks })], controllers: [Payments] })
  class App {}

  const app = await NestFactory.create(App, adapter as ExpressAdapter, {
    logger: false,
    forceCloseConnections: true,
  })
  onTestFinished(() => app.close())
  app.use((_: unknown, response: { setHeader(name: string, value: string): void }, next: () => void) => {
    response.setHeader('x-request-id', requestId())
    next()
  })
  await app.listen(0, '127.0.0.1')
  return `${await app.getUrl()}/payments`
}

interface NestResponse {
  status(status: number): unknown
  header(name: string, value: string): unknown
}
