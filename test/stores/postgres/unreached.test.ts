import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { type Store, UNLIMITED } from '../../../src/contract/store.ts'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import {
  headOfUnreachedQueueIsOffered,
  offerPassesUnreachedWaiter,
  type TwoProcesses,
  waiterWithoutMessagesKeepsItsTurn,
} from '../unreached-waiters.ts'
import { clients } from './clients.ts'

let server: PostgresServer
let near: Store
const newClient = clients['the package pg'] as NonNullable<(typeof clients)[string]>
beforeAll(async () => {
  server = await startPostgres()
  near = postgresStore(newClient(server.url))
  await near.acquire(ticket({ key: 'makes the tables', ttlMs: 1 }))
  await near.listen?.(() => {})
})
beforeEach(() => server.sql('truncate holdfast.lock_holders, holdfast.lock_waiters'))
afterAll(async () => {
  await near?.close()
  await server?.close()
})

async function twoProcesses(
  open = (url: string): Store => postgresStore(newClient(url)),
): Promise<TwoProcesses> {
  const proxy = await startProxy({ targetPort: server.port })
  const far = open(server.url.replace(`:${server.port}/`, `:${proxy.port}/`))
  onTestFinished(async () => {
    await far.close()
    await proxy.close()
  })
  await far.listen?.(() => {})
  return { near, far, proxy, untilUnreached }
}

function sharingStore(url: string): Store {
  const pool = new pg.Pool({ connectionString: url })
  // The application has to handle the errors of idle connections that are cut.
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  return postgresStore(pool, { connections: 'shared' })
}

/** Waits until this many sessions listen. One of them is this process's own. */
function untilListening(count: number): Promise<unknown> {
  return until(`${count} sessions listen`, async () => {
    const sessions = await server.sql(
      `select 1 from pg_stat_activity where state = 'idle' and query like 'listen %'`,
    )
    return sessions.length === count
  })
}

const untilUnreached = () => untilListening(1)

async function roomOf(key: string) {
  return (await near.inspect({ prefix: key, cursor: undefined, count: 1 })).rooms[0]
}

describe.each([
  ...Object.entries(clients).map(([name, clientOf]) => ({
    name,
    open: (url: string) => postgresStore(clientOf(url)),
  })),
  { name: 'a pool that is shared', open: sharingStore },
])('on $name,', ({ open }) => {
  test('an offer passes a waiter whose process has no session any more, and it keeps its place', async () => {
    await offerPassesUnreachedWaiter(await twoProcesses(open))
  })
})

test('a waiter that has asked without its messages is offered the key in its turn', async () => {
  const silent = postgresStore(newClient(server.url))
  onTestFinished(() => silent.close())
  await waiterWithoutMessagesKeepsItsTurn(near, silent)
})

test('if no process in the queue has a session any more, the head is offered the key', async () => {
  await headOfUnreachedQueueIsOffered(await twoProcesses())
})

test('no waiter passes one that is too wide to be let in, whichever is unreached in front of it', async () => {
  const { far, proxy } = await twoProcesses()
  const [staying, leaving] = [ticket({ limit: 2 }), ticket({ limit: 2 })]
  const [unreached, wide, last] = [ticket({ limit: 2 }), ticket({ limit: 2, units: 2 }), ticket({ limit: 2 })]
  for (const holder of [staying, leaving]) fenceOf(await near.acquire(holder))
  expect(await far.acquire(unreached)).toMatchObject({ tag: 'queued' })
  for (const waiter of [wide, last]) expect(await near.acquire(waiter)).toMatchObject({ tag: 'queued' })
  proxy.refuse()
  await untilUnreached()
  await near.release(releaseOf(leaving))
  const room = await roomOf('key')
  expect(room?.holders).toMatchObject([{ id: staying.id }, { id: unreached.id, state: 'offered' }])
  expect(room?.queue).toMatchObject([{ id: wide.id }, { id: last.id }])
})

test('readers pass an unreached writer one at a time, and only while it could hold the key itself', async () => {
  const { far, proxy } = await twoProcesses()
  const [holder, writer] = [ticket(), ticket()]
  const readers = Array.from({ length: 3 }, () => ticket({ limit: UNLIMITED }))
  fenceOf(await near.acquire(holder))
  await far.acquire(writer)
  for (const reader of readers) await near.acquire(reader)
  proxy.refuse()
  await untilUnreached()
  await near.release(releaseOf(holder))
  const room = await roomOf('key')
  expect(room?.holders).toMatchObject([{ id: readers[0]?.id }])
  expect(room?.queue).toMatchObject([writer, ...readers.slice(1)].map(({ id }) => ({ id })))
})

test('of a crowd without any listener, 200 are looked at, and the call ends', async () => {
  const { far, proxy } = await twoProcesses()
  const [holder, living] = [ticket(), ticket()]
  fenceOf(await near.acquire(holder))
  const dead = Array.from({ length: 450 }, () => ticket())
  await Promise.all(dead.map((each) => far.acquire(each)))
  expect(await near.acquire(living)).toMatchObject({ tag: 'queued', ahead: 450 })
  proxy.refuse()
  await untilUnreached()
  await near.release(releaseOf(holder))
  const room = await roomOf('key')
  expect(room?.holders).toMatchObject([{ id: dead[0]?.id, state: 'offered' }])
  expect(room?.queue).toHaveLength(450)
})

test('a call that finds a process gone stops neither other calls from that nor the process from coming back', async () => {
  const { far, proxy } = await twoProcesses()
  const roomAt = (key: string) => ({
    holder: ticket({ key }),
    dead: ticket({ key }),
    living: ticket({ key }),
  })
  const [slow, quick] = [roomAt('slow'), roomAt('quick')]
  for (const { holder, dead, living } of [slow, quick]) {
    fenceOf(await near.acquire(holder))
    await far.acquire(dead)
    await near.acquire(living)
  }
  proxy.refuse()
  await untilUnreached()
  // A process that freezes behind a pooler leaves its call like this.
  const frozen = new pg.Client(server.url)
  await frozen.connect()
  onTestFinished(() => frozen.end())
  await frozen.query('begin isolation level read committed')
  await frozen.query(`select holdfast.lock_release('{slow}', $1, '{false}', '', true)`, [[slow.holder.id]])
  await near.release(releaseOf(quick.holder))
  fenceOf((await near.renew([quick.living]))[0])
  proxy.normal()
  await untilListening(2)
  await frozen.query('commit')
  fenceOf((await near.renew([slow.living]))[0])
})

test('a process has one lock however often it reconnects, and none when it is closed', async () => {
  const locks = () =>
    server.sql(`select 1 from pg_locks where locktype = 'advisory' and classid = 1212236373 and granted`)
  const { far, proxy } = await twoProcesses()
  for (let round = 0; round < 3; round += 1) {
    proxy.refuse()
    await untilUnreached()
    proxy.normal()
    await untilListening(2)
  }
  expect(await locks()).toHaveLength(2)
  await far.close()
  await untilUnreached()
  expect(await locks()).toHaveLength(1)
})

test('a process that takes itself for heard, and has no session any more, is offered the key once it has asked', async () => {
  const { far, proxy } = await twoProcesses()
  const [holder, lost, next] = [ticket(), ticket(), ticket()]
  fenceOf(await near.acquire(holder))
  await far.acquire(lost)
  await near.acquire(next)
  // The server ends the session, and the process does not hear of that.
  expect(proxy.silence('listen "holdfast_')).toBe(1)
  await server.sql(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where query like 'listen %' and client_port <> all (array(
       select client_port from pg_stat_activity where query like 'listen %' order by backend_start limit 1))`,
  )
  await untilUnreached()
  expect(await far.acquire(lost)).toMatchObject({ tag: 'queued', ahead: 0 })
  await near.release(releaseOf(holder))
  fenceOf(await far.acquire(lost))
})
