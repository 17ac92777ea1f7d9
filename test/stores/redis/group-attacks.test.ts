import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { scripts } from '../../../src/stores/redis/lua/scripts.generated.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

let server: RedisServer
let store: Store
beforeAll(async () => {
  server = await startRedis()
  store = redisStore(newClient(server.url))
})
beforeEach(() => server.command('FLUSHALL'))
afterAll(async () => {
  await store.close()
  await server.close()
})

/** A holder, and its waiters as a group. */
async function newGroup(of: Store, key: string, size = 10): Promise<{ holder: Ticket; waiters: Ticket[] }> {
  const holder = ticket({ key })
  const waiters = Array.from({ length: size }, () => ticket({ key }))
  fenceOf(await of.acquire(holder))
  await Promise.all(waiters.map((waiter) => of.acquire(waiter)))
  for (let round = 0; round < 2; round += 1) expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  return { holder, waiters }
}

function tagsOf(answers: readonly ({ readonly tag: string } | undefined)[]): string[] {
  return [...new Set(answers.map((answer) => answer?.tag ?? 'none'))]
}

/** What the store says of all of them, or the code of its error. */
function renewed(of: Store, waiters: readonly Ticket[]): Promise<string> {
  return Promise.resolve(of.renew(waiters)).then(
    (answers) => tagsOf(answers).join(),
    (error: { code: string }) => error.code,
  )
}

async function groupsOf(key = 'key'): Promise<readonly string[]> {
  return (await server.command('ZRANGEBYLEX', `holdfast:{${key}}`, '[r', '(s')) as readonly string[]
}

/** A store behind a proxy. */
async function storeBehindProxy() {
  const proxy = await startProxy({ targetPort: server.port })
  const of = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
  onTestFinished(async () => {
    proxy.cut()
    await of.close()
    await proxy[Symbol.asyncDispose]()
  })
  return { proxy, of }
}

test('waiters that come together on other terms are in other groups, and each is told its own time', async () => {
  fenceOf(await store.acquire(ticket()))
  const patient = Array.from({ length: 700 }, () => ticket())
  const brief = Array.from({ length: 3300 }, () => ticket({ ttlMs: 3000, acceptMs: 3000, patienceMs: 9000 }))
  const queued = await Promise.all([...patient, ...brief].map((waiter) => store.acquire(waiter)))
  expect(queued.map((answer) => answer.tag === 'queued' && answer.ahead)).toEqual(queued.map((_, at) => at))
  const answers = await store.renew([...patient, ...brief])
  const asksAgain = answers.map((answer) => (answer.tag === 'queued' ? answer.askAgainMs : 0))
  expect(Math.max(...asksAgain.slice(700))).toBeLessThanOrEqual(2000)
  expect(Math.min(...asksAgain.slice(0, 700))).toBeGreaterThan(2000)
})

test('a store that is closed while questions about groups are gathered rejects them, and leaves nothing open', async () => {
  const of = redisStore(newClient(server.url))
  const { waiters } = await newGroup(of, 'key')
  const outcome = renewed(of, waiters)
  await of.close()
  expect(['store-refused', 'store-unavailable']).toContain(await outcome)
  expect(await renewed(of, waiters)).toBe('store-refused')
})

test('a group in a room of another layout does not cost the others of its request', async () => {
  const crowds = []
  for (let number = 0; number < 50; number += 1) crowds.push(await newGroup(store, `key ${number}`, 8))
  const spoiled = crowds[25]?.waiters ?? []
  await server.command('DEL', 'holdfast:{key 25}')
  await server.command('ZADD', 'holdfast:{key 25}', '0', '9 1 1 1 1 0 1 1')
  await server.command('DEL', 'holdfast:{key 30}')
  await server.command('HSET', 'holdfast:{key 30}', 'a', 'b')
  // It looks like a room, and breaks the script in the middle.
  await server.command('DEL', 'holdfast:{key 40}')
  await server.command('ZADD', 'holdfast:{key 40}', '0', '2 1 1 1 1 0 1234567890123 1', '0', 'e1')
  await server.command('CONFIG', 'RESETSTAT')
  const all = crowds.flatMap(({ waiters }) => waiters)
  const answers = await store.renew(all)
  for (const [at, { waiters }] of crowds.entries()) {
    const tags = tagsOf(waiters.map((waiter) => answers[all.indexOf(waiter)]))
    expect([at, tags]).toEqual([at, [25, 30, 40].includes(at) ? ['gone'] : ['queued']])
  }
  await expect(store.acquire(spoiled[0] as Ticket)).rejects.toMatchObject({ code: 'store-refused' })
})

test('the reply about groups is lost: nothing is lost with it, and the next question is one request', async () => {
  const { proxy, of } = await storeBehindProxy()
  const { holder, waiters } = await newGroup(of, 'key')
  await server.command('CONFIG', 'RESETSTAT')
  proxy.dropReplies()
  const lost = renewed(of, waiters)
  await until('the server has answered', async () => (await server.commandStats())['evalsha'] === 1)
  proxy.cut()
  proxy.normal()
  expect(await lost).toBe('store-unavailable')
  await until('it is there again', async () => (await renewed(of, waiters)) === 'queued')
  expect((await groupsOf()).length).toBe(1)
  await server.command('CONFIG', 'RESETSTAT')
  expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  expect((await server.commandStats())['evalsha']).toBe(1)
  expect(await of.release(releaseOf(holder))).toEqual({ was: 'held' })
  expect(tagsOf(await of.renew(waiters.slice(0, 1)))).toEqual(['held'])
})

test('a group whose join was answered in part only is made anew, and its waiters keep their places', async () => {
  const { proxy, of } = await storeBehindProxy()
  const holder = ticket()
  fenceOf(await of.acquire(holder))
  const waiters = Array.from({ length: 300 }, () => ticket())
  for (const waiter of waiters) await of.acquire(waiter)
  proxy.dropReplies()
  const lost = renewed(of, waiters)
  await until('the server has added some', async () => (await groupsOf()).length > 0)
  proxy.cut()
  proxy.normal()
  expect(await lost).toBe('store-unavailable')
  await until('it is there again', async () => (await renewed(of, waiters)) === 'queued')
  expect((await groupsOf()).map((entry) => entry.split(' ').slice(-2).join(' '))).toEqual(['300 0'])
  const { rooms } = await of.inspect({ prefix: 'key', cursor: undefined, count: 1 })
  expect(rooms[0]?.queue.map(({ id }) => id)).toEqual(waiters.map(({ id }) => id))
})

test('a group whose waiters all leave at once leaves nothing behind', async () => {
  const { holder, waiters } = await newGroup(store, 'key', 500)
  const asked = store.renew(waiters)
  const left = await Promise.all(waiters.map((waiter) => store.release(releaseOf(waiter))))
  expect(new Set(left.map(({ was }) => was))).toEqual(new Set(['queued']))
  expect(tagsOf(await asked)).toEqual(['gone'])
  expect(await groupsOf()).toEqual([])
  await store.release(releaseOf(holder))
  expect(await server.command('EXISTS', 'holdfast:{key}')).toBe(0)
})

test('a server with an older state of a group forgets the waiters that have left since', async () => {
  // Longer than a busy machine takes from one question to the next.
  const terms = { patienceMs: 5000, acceptMs: 5000 }
  const holder = ticket()
  fenceOf(await store.acquire(holder))
  const waiters = Array.from({ length: 12 }, () => ticket(terms))
  for (const waiter of waiters) await store.acquire(waiter)
  for (let round = 0; round < 2; round += 1) await store.renew(waiters)
  const kept = (await server.command('ZRANGE', 'holdfast:{key}', '0', '-1')) as string[]
  const ghosts = waiters.slice(0, 3)
  const rest = waiters.slice(3)
  for (const ghost of ghosts) await store.release(releaseOf(ghost))
  await server.command('DEL', 'holdfast:{key}')
  await server.command('ZADD', 'holdfast:{key}', ...kept.flatMap((member) => ['0', member]))
  await until('the ghosts are forgotten', async () => {
    expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
    const { rooms } = await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })
    return rooms[0]?.queue.length === rest.length
  })
  await store.release(releaseOf(holder))
  expect(tagsOf(await store.renew(rest.slice(0, 1)))).toEqual(['held'])
})

test('a group whose first waiters leave before the others join is over, and remembers the others', async () => {
  fenceOf(await store.acquire(ticket({ key: 'key' })))
  const [first, second, third] = [ticket({ key: 'key' }), ticket({ key: 'key' }), ticket({ key: 'key' })]
  for (const one of [first, second, third]) await store.acquire(one)
  const renew = (mode: string, id: string) => {
    const args = ['30000', '6000 0 0', `2000 inbox ${mode}`, id]
    return server.command('EVAL', scripts.renew, '2', 'holdfast:fence', 'holdfast:{key}', ...args)
  }
  expect(await renew('+inbox/1', first.id)).toMatch(/^q/)
  await store.release(releaseOf(first))
  expect(await renew('=inbox/1', second.id)).toMatch(/^q/)
  expect(await groupsOf()).toHaveLength(1)
  expect(await renew('=inbox/1', third.id)).toMatch(/^q/)
  expect(await renew('*', 'inbox/1')).toBe('-')
  // A group that begins anew is one again.
  expect(await renew('+inbox/2', second.id)).toMatch(/^q/)
  expect(await renew('=inbox/2', third.id)).toMatch(/^q/)
  expect(await renew('*', 'inbox/2')).toMatch(/^q/)
})
