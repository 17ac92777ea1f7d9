// Middlewares that stand before ours, and change the response as `compression` and `express-session` do.
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createRequestLocks } from '../../src/http/index.ts'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'

type Respond = (response: ServerResponse) => unknown

async function serve(before: Respond, handler: Respond): Promise<string> {
  const locks = createLocks(memoryStore())
  const idempotent = createRequestLocks(locks).idempotent({ remember: '1h', scope: () => 'ada' })
  const server = createServer((request, response) => {
    before(response)
    idempotent(request, response, (problem) =>
      problem === undefined ? handler(response) : void response.destroy(),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
    await locks.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const ANSWERS: readonly [string, Respond][] = [
  [
    'is written in parts',
    (response) => {
      response.write('hel')
      response.end('lo')
    },
  ],
  ['is written at once', (response) => response.end('hello')],
]

const post = (url: string) =>
  fetch(url, {
    method: 'POST',
    headers: { 'idempotency-key': 'k' },
    signal: AbortSignal.timeout(5000),
  })

test.each(ANSWERS)(
  'headers that others add to the head are added anew to a repetition (an answer that %s)',
  async (_, handler) => {
    const added: boolean[] = []
    const url = await serve((response) => {
      const writeHead = response.writeHead.bind(response) as (...args: unknown[]) => ServerResponse
      response.writeHead = (...args: unknown[]) => {
        added.push(!response.hasHeader('x-coding'))
        response.setHeader('x-coding', 'none')
        return writeHead(...args)
      }
    }, handler)
    for (let count = 0; count < 2; count += 1) expect(await (await post(url)).text()).toBe('hello')
    expect(added).toEqual([true, true])
  },
)

test.each(ANSWERS)(
  'others get the body with `end`, which they may delay (an answer that %s)',
  async (_, handler) => {
    const ended: string[] = []
    const url = await serve((response) => {
      const end = response.end.bind(response) as (...args: unknown[]) => ServerResponse
      response.end = ((...args: unknown[]) => {
        ended.push(String(args[0]))
        return end(...args)
      }) as typeof response.end
    }, handler)
    for (let count = 0; count < 2; count += 1) expect(await (await post(url)).text()).toBe('hello')
    expect(ended).toEqual(['hello', 'hello'])
  },
)

test('a head that is sent before is no answer: the handler runs', async () => {
  const url = await serve(
    (response) => response.flushHeaders(),
    (response) => response.end('hello'),
  )
  expect(await (await post(url)).text()).toBe('hello')
  await expect(post(url).then((answer) => answer.text())).rejects.toThrow()
})
