import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import pg from 'pg'
import { expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { connectionsOf } from '../../../src/postgres/connections.ts'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { clients } from './clients.ts'

test('a lease that an asynchronous standby has never heard of is lost by its deadline, and the next fence is higher', async () => {
  await using primary = await startPostgres()
  await using address = await startAddress(primary.port)
  const url = primary.url.replace(`:${primary.port}/`, `:${address.port}/`)
  const newLocks = () => createLocks(postgresStore(new pg.Pool({ connectionString: url })))
  const [holding, waiting] = [newLocks(), newLocks()]
  const known = await holding.acquire('known')
  await using standby = await startPostgres({ standbyOf: primary })
  await until('the standby follows', async () => {
    return (await standby.sql(`select 1 from holdfast.lock_holders where key = 'known'`)).length === 1
  })
  await standby.pause()
  await primary.sql('select pg_terminate_backend(pid) from pg_stat_replication')
  await known.release()
  const ttlMs = 6000
  const lost = await holding.acquire('k', { ttl: ttlMs })
  const aborted = new Promise<void>((resolve) => {
    lost.signal.addEventListener('abort', () => resolve())
  })
  // Timers fire in the order in which they are due, however late the process is.
  const wasToldInTime = new Promise((resolve) => {
    setTimeout(() => resolve(lost.signal.aborted), ttlMs)
  })
  const next = waiting.acquire('k', { wait: '2m' })
  await primary.kill()
  standby.resume()
  await standby.sql('select pg_promote()')
  address.leadTo(standby.port)
  await aborted
  expect(await wasToldInTime).toBe(true)
  expect(lost.signal.reason).toMatchObject({
    code: 'lease-lost',
    reason: expect.stringMatching(/^(store-reset|expired)$/),
  })
  const lease = await next
  expect(lease.fence).toBeGreaterThan(lost.fence)
  await lease.release()
  await holding.close()
  await waiting.close()
})

test('a connection that led to a read-only server gives way to one that leads to the new primary', async () => {
  await using primary = await startPostgres()
  await migrate(new pg.Client(primary.url))
  await using standby = await startPostgres({ standbyOf: primary })
  await using address = await startAddress(standby.port)
  for (const [name, newClient] of Object.entries(clients)) {
    address.leadTo(standby.port)
    const store = postgresStore(newClient(primary.url.replace(`:${primary.port}/`, `:${address.port}/`)))
    const mine = ticket({ key: name })
    const readOnly = { code: 'store-unavailable', message: expect.stringContaining('is read-only') }
    await expect(store.acquire(mine)).rejects.toMatchObject(readOnly)
    const opened = address.opened()
    for (let call = 0; call < 5; call += 1) await expect(store.acquire(mine)).rejects.toMatchObject(readOnly)
    expect(address.opened()).toBeLessThan(opened + 3)
    address.leadTo(primary.port)
    await until('it leads to the primary', async () => {
      const answer = await Promise.resolve(store.acquire(mine)).catch(() => undefined)
      return answer?.tag === 'held'
    })
    await store.close()
  }
})

test('a statement that takes long goes on if the address leads to another server meanwhile', async () => {
  await using primary = await startPostgres()
  await using standby = await startPostgres({ standbyOf: primary })
  await using address = await startAddress(primary.port)
  for (const newClient of Object.values(clients)) {
    address.leadTo(primary.port)
    const client = newClient(primary.url.replace(`:${primary.port}/`, `:${address.port}/`))
    const connections = connectionsOf(client, { max: 1, applicationName: 'holdfast test', isPrompt: true })
    await connections.query('select 1')
    address.leadTo(standby.port)
    const opened = address.opened()
    expect(await connections.query("select 'slept' as what from pg_sleep(2)")).toEqual([{ what: 'slept' }])
    expect(address.opened()).toBe(opened + 1)
    await connections.close()
  }
})

test.each(Object.entries(clients))(
  'on %s, a schema that was lost with the primary, or dropped, is made again by the next call',
  async (_, newClient) => {
    await using server = await startPostgres()
    const store = postgresStore(newClient(server.url))
    const careful = postgresStore(newClient(server.url), { migrate: false })
    const mine = ticket()
    const before = fenceOf(await store.acquire(mine))
    await careful.renew([mine])
    await server.sql('drop schema holdfast cascade')
    await expect(careful.renew([mine])).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/have version 0, .* Run migrate\(\)/),
    })
    expect(await store.renew([mine])).toEqual([{ tag: 'gone', evicted: false }])
    expect(fenceOf(await store.acquire(ticket()))).toBeGreaterThan(before)
    await careful.renew([mine])
    await store.close()
    await careful.close()
  },
)

/** An address that leads to one server, and later to another one. */
async function startAddress(firstPort: number) {
  let port = firstPort
  let opened = 0
  const server = createServer((client) => {
    opened += 1
    const upstream = connect(port, '127.0.0.1')
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      from.on('error', () => to.destroy())
      from.on('close', () => to.destroy())
      from.pipe(to)
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    /** How many connections it has taken. */
    opened: () => opened,
    leadTo(nextPort: number) {
      port = nextPort
    },
    async [Symbol.asyncDispose]() {
      server.close()
    },
  }
}
