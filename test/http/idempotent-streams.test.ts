// Answers that a handler streams, in each framework, and that end before their end.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import express from 'express'
import { fastify } from 'fastify'
import { describe, expect, onTestFinished, test } from 'vitest'
import { holdfast } from '../../src/fastify/index.ts'
import { createRequestLocks, type IdempotencyOptions, type IncomingRequest } from '../../src/http/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'

type Chunks = () => AsyncIterable<string>

/** Each serves what `chunks` gives, and returns its URL. */
const servers: Readonly<Record<string, (locks: Locks, chunks: Chunks) => Promise<string>>> = {
  'node:http': (locks, chunks) => {
    const idempotent = createRequestLocks(locks).idempotent<IncomingRequest>(OPTIONS)
    const server = createServer((request, response) =>
      idempotent(request, response, async (problem?: Error & { statusCode?: number }) => {
        try {
          if (problem !== undefined) throw problem
          for await (const chunk of chunks()) response.write(chunk)
          response.end()
        } catch (error) {
          if (response.headersSent) return void response.destroy()
          const page = (error as Error).message
          response
            .setHeader('content-length', page.length)
            .writeHead(problem?.statusCode ?? 500)
            .end(page)
        }
      }),
    )
    return urlOf(server)
  },

  Express: (locks, chunks) => {
    const app = express().set('env', 'test')
    app.post('/', createRequestLocks(locks).idempotent(OPTIONS), async (_, response) => {
      for await (const chunk of chunks()) response.write(chunk)
      response.end()
    })
    return urlOf(createServer(app))
  },

  Fastify: async (locks, chunks) => {
    const app = fastify({ forceCloseConnections: true })
    onTestFinished(() => app.close())
    await app.register(holdfast, { locks })
    app.post('/', { preHandler: app.idempotent(OPTIONS) }, async () => Readable.from(chunks()))
    return app.listen({ port: 0, host: '127.0.0.1' })
  },
}

const OPTIONS: IdempotencyOptions = { remember: '1h', scope: () => 'ada', maxHold: '1s', onError: () => {} }

async function urlOf(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

function locksOfTest(): Locks {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  return locks
}

async function post(url: string): Promise<readonly [number, string]> {
  const answer = await fetch(url, { method: 'POST', headers: { 'idempotency-key': 'k' } })
  return [answer.status, await answer.text()]
}

describe.each(Object.entries(servers))('a streamed answer, on %s', (_, serve) => {
  test('is kept whole', async () => {
    let runs = 0
    const url = await serve(locksOfTest(), async function* () {
      yield `run ${++runs}, `
      yield 'all of it'
    })
    expect(await post(url)).toEqual([200, 'run 1, all of it'])
    expect(await post(url)).toEqual([200, 'run 1, all of it'])
  })

  test('that fails after its first chunk ends with its connection, and no error page follows it', async () => {
    const url = await serve(locksOfTest(), async function* () {
      yield 'rows of the database '.repeat(10)
      throw new Error('the cursor is lost')
    })
    await expect(post(url)).rejects.toThrow()
  })
})
