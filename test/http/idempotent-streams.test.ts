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
import { until } from '../servers/until.ts'
import { gate, roomsOf } from './scene.ts'

type Chunks = () => AsyncIterable<string>
type Serve = (locks: Locks, chunks: Chunks) => Promise<string>

/** Each serves what `chunks` gives, and returns its URL. */
const servers: Readonly<Record<string, Serve>> = {
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

const OPTIONS: IdempotencyOptions = { remember: '1h', scope: () => 'ada', onError: () => {} }

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

async function post(url: string, signal: AbortSignal | null = null): Promise<readonly [number, string]> {
  const answer = await fetch(url, { method: 'POST', headers: { 'idempotency-key': 'k' }, signal })
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
    expect(await post(url)).toEqual([410, expect.stringContaining('is not done again')])
  })

  test.each([
    ['its first chunk', 1],
    ['its first 64 KiB', 3],
  ])('whose client hangs up after %s is not made again', async (_, chunks) => {
    expect(await hungUp(serve, chunks)).toEqual({ status: 410, runs: 1 })
  })
})

test('a stream of Fastify whose client hangs up before its first chunk is not made again', async () => {
  expect(await hungUp(servers['Fastify'] as Serve, 0)).toEqual({ status: 410, runs: 1 })
})

/** A client hangs up after some chunks of 30 kB. Resolves with what its repetition gets. */
async function hungUp(serve: Serve, chunks: number): Promise<{ status: number; runs: number }> {
  const begun = gate()
  const end = gate()
  onTestFinished(() => end.open())
  let runs = 0
  const locks = locksOfTest()
  const url = await serve(locks, async function* () {
    runs += 1
    for (let count = 0; count < chunks; count += 1) yield 'x'.repeat(30_000)
    begun.open()
    await end.opened
    yield 'more'
  })
  const client = new AbortController()
  const first = post(url, client.signal)
  first.catch(() => {})
  await begun.opened
  client.abort()
  await until('the key is settled', async () => String(await roomsOf(locks)).includes('#done: 1 + 0'))
  return { status: (await post(url))[0], runs }
}
