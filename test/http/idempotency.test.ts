import { describe, expect, onTestFinished, test } from 'vitest'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { type Answer, servers } from './idempotent-servers.ts'
import { gate, roomsOf } from './scene.ts'

interface Post {
  readonly key?: string | undefined
  readonly user?: string
  readonly body?: unknown
  readonly signal?: AbortSignal
}

function post(
  url: string,
  { key, user = 'ada', body = { amount: 5 }, signal }: Post = {},
): Promise<Response> {
  const headers = {
    'content-type': 'application/json',
    user,
    ...(key === undefined ? {} : { 'idempotency-key': key }),
  }
  return fetch(url, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  })
}

/** The locks of the server. */
function twoLocks(): { locks: Locks; other: Locks } {
  const store = memoryStore()
  const [locks, other] = [createLocks(store), createLocks(store)]
  onTestFinished(async () => {
    await Promise.all([locks.close(), other.close()])
  })
  return { locks, other }
}

describe.each(Object.entries(servers))('a request with an Idempotency-Key, on %s', (_, serve) => {
  test('is answered once: a repetition gets the status, the headers and the body', async () => {
    let runs = 0
    const url = await serve(twoLocks().locks, async () => {
      runs += 1
      return { status: 202, headers: { 'x-payment': `p${runs}` }, body: { paid: runs, text: 'ü€' } }
    })
    const first = await post(url, { key: 'k1' })
    const second = await post(url, { key: 'k1' })
    const firstBody = await first.text()
    expect([first.status, JSON.parse(firstBody)]).toEqual([202, { paid: 1, text: 'ü€' }])
    expect([second.status, await second.text()]).toEqual([202, firstBody])
    expect(second.headers.get('x-payment')).toBe('p1')
    expect(second.headers.get('content-type')).toBe(first.headers.get('content-type'))
    expect([first, second].map(({ headers }) => headers.get('idempotent-replayed'))).toEqual([null, 'true'])
    // Of each request, and not of the first one.
    expect(second.headers.get('x-request-id')).toMatch(/^[\da-f-]{36}$/)
    expect(second.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'))
    expect(runs).toBe(1)
    expect((await post(url, { key: 'k2' })).headers.get('x-payment')).toBe('p2')
    expect((await post(url)).headers.get('x-payment')).toBe('p3')
  })

  test('is refused while the first one runs (409), and with another body (422)', async () => {
    const begun = gate()
    const end = gate()
    const url = await serve(twoLocks().locks, async () => {
      begun.open()
      await end.opened
      return { status: 200, body: { paid: true } }
    })
    const first = post(url, { key: 'k' })
    await begun.opened
    const running = await post(url, { key: 'k' })
    expect([running.status, running.headers.get('retry-after')]).toEqual([409, '1'])
    end.open()
    expect((await first).status).toBe(200)
    const other = await post(url, { key: 'k', body: { amount: 6 } })
    expect(other.status).toBe(422)
    expect(await other.text()).toContain('came with another request before')
    expect((await post(`${url}?currency=eur`, { key: 'k' })).status).toBe(422)
    expect(await (await post(url, { key: 'k' })).json()).toEqual({ paid: true })
  })

  test('runs again after an answer that is not final', async () => {
    const answers: Answer[] = [
      { status: 500, body: { error: 'broken' } },
      { status: 429, body: { error: 'slow down' } },
      { status: 201, body: { paid: true } },
    ]
    const url = await serve(twoLocks().locks, async () => answers.shift() ?? expect.unreachable())
    const statuses: number[] = []
    for (let round = 0; round < 4; round += 1) statuses.push((await post(url, { key: 'k' })).status)
    expect(statuses).toEqual([500, 429, 201, 201])
  })

  test('is finished although its client hangs up, and the repetition gets the answer', async () => {
    const { locks, other } = twoLocks()
    const begun = gate()
    const end = gate()
    let runs = 0
    const url = await serve(locks, async () => {
      runs += 1
      begun.open()
      await end.opened
      return { status: 200, body: { runs } }
    })
    const client = new AbortController()
    const first = post(url, { key: 'k', signal: client.signal })
    first.catch(() => {})
    await begun.opened
    client.abort()
    end.open()
    await until('the answer is kept', async () => String(await roomsOf(other)).includes('#done: 1 + 0'))
    expect(await (await post(url, { key: 'k' })).json()).toEqual({ runs: 1 })
  })

  test('belongs to its scope, and needs a key where one is required', async () => {
    let runs = 0
    const url = await serve(
      twoLocks().locks,
      async () => {
        runs += 1
        return { status: 200, body: { runs } }
      },
      { required: true },
    )
    const missing = await post(url)
    expect([missing.status, await missing.text()]).toEqual([400, expect.stringContaining('Idempotency-Key')])
    expect((await post(url, { key: 'two words' })).status).toBe(400)
    expect(await (await post(url, { key: 'k', user: 'ada' })).json()).toEqual({ runs: 1 })
    expect(await (await post(url, { key: 'k', user: 'bob' })).json()).toEqual({ runs: 2 })
    // The scope ends where it ends: neither of these reaches the key of the other.
    expect(await (await post(url, { key: 'c', user: 'a:b' })).json()).toEqual({ runs: 3 })
    expect(await (await post(url, { key: 'b:c', user: 'a' })).json()).toEqual({ runs: 4 })
    expect(await (await post(url, { key: '"k"', user: 'ada' })).json()).toEqual({ runs: 1 })
  })
})
