import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store, Wake } from '../../../src/contract/store.ts'
import { createLocks } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { sendCommand } from '../../servers/resp.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { readProjectFile } from '../../tidy/project.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients, newClient } from './clients.ts'

const [, rights = ''] =
  /^ACL SETUSER locks on >a-good-password (.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
const commands = Array.from(rights.matchAll(/\+(\w+)/g), ([, command]) => command ?? '')
/** The rights without which the store does not work. Without the others it is only slower. */
const needed = commands.filter((command) => !['publish', 'pubsub', 'subscribe', 'ping'].includes(command))

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

/** Makes the user of the documentation, with these changes. */
async function user(...changes: string[]): Promise<string> {
  await server.command('ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', ...rights.split(' '), ...changes)
  await server.command('FLUSHALL')
  await server.command('SCRIPT', 'FLUSH')
  return `redis://locks:secret@127.0.0.1:${server.port}`
}

describe('a user that may do what the documentation lists', () => {
  test.each(Object.entries(clients))(
    'is enough for everything that the store does through %s',
    async (_, newClient) => {
      const store = redisStore(newClient(await user()))
      await everything(store)
      await store.close()
      // The server logs every command without permission, even if the caller would not notice.
      expect(await server.command('ACL', 'LOG')).toEqual([])
    },
  )

  test.each([
    ['', 'granted', []],
    [' without pubsub, which takes a request more', 'ticket', ['-pubsub']],
  ] as const)('is woken in its turn%s', async (_, tag, changes) => {
    const url = await user(...changes)
    const [one, other] = [redisStore(newClient(url)), redisStore(newClient(url))]
    const wakes: Wake[] = []
    await other.listen?.((wake) => wakes.push(wake))
    const [holder, waiter] = [ticket(), ticket()]
    fenceOf(await one.acquire(holder))
    await other.acquire(waiter)
    await one.release(releaseOf(holder))
    await until('it is woken', () => wakes.length > 0)
    expect(wakes).toMatchObject([{ tag, id: waiter.id }])
    fenceOf(await other.acquire(waiter))
    for (const store of [one, other]) await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })

  test.each(needed)('cannot do without %s', async (command) => {
    const store = redisStore(newClient(await user(`-${command}`)))
    await expect(everything(store)).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('docs/redis.md'),
    })
    await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })

  test.each(needed.filter((command) => !['eval', 'evalsha', 'scan'].includes(command)))(
    'does not touch another store’s room without %s',
    async (command) => {
      const [full, store] = [
        redisStore(newClient(server.url)),
        redisStore(newClient(await user(`-${command}`))),
      ]
      const mine = ticket()
      await full.acquire(mine)
      const before = await server.command('GET', 'holdfast:{key}')
      const attempts = [store.acquire(ticket({ patienceMs: 0 })), store.release(releaseOf(ticket()))]
      for (const attempt of await Promise.allSettled(attempts)) expect(attempt.status).toBe('rejected')
      expect(await server.command('GET', 'holdfast:{key}')).toBe(before)
      for (const view of [full, store]) await view.close()
      await server.command('ACL', 'LOG', 'RESET')
    },
  )

  test('cannot do without its keys', async () => {
    const store = redisStore(newClient(await user('resetkeys')))
    await expect(everything(store)).rejects.toMatchObject({ code: 'store-refused' })
    await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })

  test.each(['-publish', '-subscribe', 'resetchannels'])(
    'with %s gets every lock in its turn, later, and a warning says once what is missing',
    async (change) => {
      const prefix = `holdfast:${change}:`
      const warnings: string[] = []
      const hear = ({ name, message }: Error): unknown => name === 'HoldfastWarning' && warnings.push(message)
      process.on('warning', hear)
      const url = await user(change)
      const [mine, other] = [1, 2].map(() => createLocks(redisStore(newClient(url), { prefix })))
      const held = await mine?.acquire('key', { ttl: '5s' })
      const waiting = other?.acquire('key', { wait: '60s', ttl: '5s' })
      await until('it waits', async () => (await server.command('TYPE', `${prefix}{key}`)) === 'zset')
      await held?.release()
      await (await waiting)?.release()
      await until('there is a warning', () => warnings.length > 0)
      for (const locks of [mine, other]) await locks?.close()
      process.off('warning', hear)
      expect(warnings).toEqual([
        expect.stringMatching(/Grant it \+publish, \+subscribe and the channels &holdfast:.*\*; see docs/),
      ])
      await server.command('ACL', 'LOG', 'RESET')
    },
  )

  test('hears of silent connections without the right to ping, too', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const url = (await user('-ping')).replace(`:${server.port}`, `:${proxy.port}`)
    const store = redisStore(newClient(url))
    const wakes: Wake[] = []
    await store.listen?.((wake) => wakes.push(wake))
    const connections = proxy.connections
    // A refusal is an answer, so the store keeps the connection.
    await until('it has asked', async () => ((await server.command('ACL', 'LOG')) as unknown[]).length > 0)
    expect(wakes).toEqual([])
    expect(proxy.connections).toBe(connections)
    expect(proxy.silence('subscribe')).toBe(1)
    await until('it listens again', () => wakes.length > 0)
    await store.close()
    await server.command('ACL', 'LOG', 'RESET')
  })

  test.each([
    ['a key of somebody else', ['GET', 'other']],
    ['a write to a key of somebody else', ['SET', 'other', '1']],
    ['a list of all keys', ['KEYS', '*']],
    ['another kind of key', ['HSET', 'holdfast:x', 'a', 'b']],
    ['the settings', ['CONFIG', 'GET', '*']],
    ['facts about the server', ['INFO']],
    ['the clients', ['CLIENT', 'LIST']],
    ['the end of all keys', ['FLUSHALL']],
    ['another database', ['SELECT', '1']],
    ['another channel', ['PUBLISH', 'other', 'x']],
    ['to hear another channel', ['SUBSCRIBE', 'other']],
    ['to hear everything', ['PSUBSCRIBE', '*']],
    ['a script that reaches for another key', ['EVAL', "return redis.call('GET', 'other')", '0']],
    ['to take another server for its master', ['REPLICAOF', 'NO', 'ONE']],
    ['the end of the server', ['SHUTDOWN', 'NOSAVE']],
  ])('may not have %s', async (_, command) => {
    await user()
    const { port } = server
    const asked = sendCommand({ port, username: 'locks', password: 'secret' }, command)
    await expect(asked).rejects.toThrow(/NOPERM|no permissions|can't access/i)
    await server.command('ACL', 'LOG', 'RESET')
  })
})

test('no script uses a command that the documentation does not list', () => {
  const folder = new URL('../../../src/stores/', import.meta.url)
  const scripts = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.lua'),
  )
  const used = scripts.flatMap((name) => {
    const text = readFileSync(new URL(name, folder), 'utf8')
    return Array.from(text.matchAll(/(?:call|tried)\('(\w+)'/g), ([, command = '']) => command.toLowerCase())
  })
  // INFO is for Redlock, and SPUBLISH for a Cluster: their lists are longer.
  expect(
    [...new Set(used)].filter((command) => !['info', 'spublish', ...commands].includes(command)),
  ).toEqual([])
  expect(used).toContain('zrange')
})

test('one right more is enough for what docs/redis.md says it is for', async () => {
  const documented = readProjectFile('docs/redis.md')
  expect(documented).toMatch(/A database other than 0 needs\s+`\+select`/)
  await user('+select')
  const store = redisStore(newClient(`redis://locks:secret@127.0.0.1:${server.port}/3`))
  await everything(store)
  await store.close()
  expect(await server.command('ACL', 'LOG')).toEqual([])
})

/** Runs every script, on every kind of room. */
async function everything(store: Store): Promise<void> {
  await store.listen?.(() => {})
  const [lone, holder, first, second] = [ticket({ key: 'lone' }), ticket(), ticket(), ticket()]
  fenceOf(await store.acquire(lone))
  fenceOf(await store.acquire(holder))
  for (const waiter of [first, second]) await store.acquire(waiter)
  expect(await store.renew([lone, holder, first])).toMatchObject([
    { tag: 'held' },
    { tag: 'held' },
    { tag: 'queued' },
  ])
  await store.release({ key: holder.key, id: holder.id, cancel: true })
  fenceOf(await store.acquire(first))
  await store.evict({ key: first.key, id: first.id, reason: 'test' })
  expect((await store.inspect({ prefix: '', cursor: undefined, count: 10 })).rooms).toHaveLength(2)
  for (const each of [lone, second]) {
    expect(await store.evict({ key: each.key, id: undefined, reason: 'test' })).toEqual([each.id])
    await store.release(releaseOf(each))
  }
}
