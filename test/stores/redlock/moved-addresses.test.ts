import { connect, createServer, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { freePort } from '../../servers/free-port.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age, type Masters, startMasters } from './masters.ts'

let masters: Masters
let away: number
beforeAll(async () => {
  masters = await startMasters(4)
  away = await freePort()
})
afterAll(() => masters.close())
beforeEach(async () => {
  for (const server of masters.servers) {
    await server.command('FLUSHALL')
    await age(server)
  }
})

interface Name {
  readonly url: string
  /** Ends all connections. New ones go to this server, or nowhere. */
  lead(server: number | undefined): void
}

async function nameOf(first: number): Promise<Name> {
  let target = masters.servers[first]?.port ?? away
  const open = new Set<Socket>()
  const server = createServer((client) => {
    const there = connect(target, '127.0.0.1')
    client.pipe(there).pipe(client)
    client.on('error', () => there.destroy())
    there.on('error', () => client.destroy())
    open.add(client)
    client.on('close', () => open.delete(client))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  onTestFinished(() => {
    server.close()
    for (const client of open) client.destroy()
  })
  return {
    url: `redis://127.0.0.1:${(server.address() as { port: number }).port}`,
    lead(index) {
      target = masters.servers[index ?? -1]?.port ?? away
      for (const client of open) client.destroy()
    },
  }
}

function namesOf(first: number, second: number, third: number): Promise<[Name, Name, Name]> {
  return Promise.all([nameOf(first), nameOf(second), nameOf(third)])
}

function storeOf(names: readonly Name[], maxTtl: '10m' | '2s' = '10m'): Store {
  return redlockStore(
    names.map(({ url }) => new Redis(url, { lazyConnect: true })),
    { maxTtl },
  )
}

/** Whether each of these servers gives the store its vote. */
async function votes(store: Store, ...servers: readonly number[]): Promise<boolean> {
  const mine = ticket({ key: crypto.randomUUID(), ttlMs: 2000, acceptMs: 2000, patienceMs: 0 })
  await Promise.allSettled([store.acquire(mine)])
  const types = await Promise.all(
    servers.map((index) => masters.servers[index]?.command('TYPE', `holdfast:{${mine.key}}`)),
  )
  await Promise.allSettled([store.release(releaseOf(mine))])
  return types.every((type) => type === 'string')
}

test('a name that leads to the server of another name is warned of, counts as away, and takes part once it is corrected', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const names = await namesOf(0, 0, 2)
  const store = storeOf(names)
  fenceOf(await store.acquire(ticket({ key: 'before' })))
  await until('it is warned of', () => warned.mock.calls.length > 0)
  expect(String(warned.mock.calls[0]?.[0])).toMatch(
    /does not take part: .* numbers 1 and 2 of the list are the same/,
  )
  warned.mockRestore()
  names[1].lead(1)
  await until('all take part', () => votes(store, 0, 1, 2))
  await store.close()
})

test('one server under three names has one vote', async () => {
  const store = storeOf(await namesOf(0, 0, 0))
  const refusal = { code: 'store-refused', message: expect.stringContaining('one server twice') }
  await until('each name is known', async () => {
    const error: unknown = await Promise.resolve(store.acquire(ticket({ patienceMs: 0 }))).catch(
      (reason) => reason,
    )
    expect(error).toBeInstanceOf(Error)
    return (error as { code?: string }).code === 'store-refused' && error
  }).then((error) => expect(error).toMatchObject(refusal))
  await store.close()
})

test('a server that moves to another name takes part there once its old name leads elsewhere', async () => {
  const names = await namesOf(0, 1, 2)
  const store = storeOf(names)
  await until('all take part', () => votes(store, 0, 1, 2))
  names[0].lead(undefined)
  names[1].lead(0)
  // The second name leads to the server that the first name had.
  for (let round = 0; round < 5; round += 1) expect(await votes(store, 0)).toBe(false)
  names[0].lead(3)
  await until('all take part', () => votes(store, 3, 0, 2))
  await store.close()
})

test('a server that moves to another name takes part there after `maxTtl` if its old name leads nowhere', async () => {
  const names = await namesOf(0, 1, 2)
  const store = storeOf(names, '2s')
  let answeredAfter = 0
  await until('all take part', () => {
    answeredAfter = performance.now()
    return votes(store, 0, 1, 2)
  })
  names[0].lead(undefined)
  names[1].lead(0)
  await until('it takes part', () => votes(store, 0, 2))
  expect(performance.now() - answeredAfter).toBeGreaterThan(2000)
  await store.close()
})
