import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect, createLocks, type InspectedRoom, type Locks } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { base64, startEtcd } from '../servers/etcd-server.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { PATIENT_MASTERS, startCluster } from '../servers/redis-cluster.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { clients } from '../stores/redis/clients.ts'
import { readProjectFile } from '../tidy/project.ts'

const page = readProjectFile('docs/inspect.md')

describe('on Redis', () => {
  let server: RedisServer
  let writer: Locks
  let scene: Scene
  beforeAll(async () => {
    server = await startRedis()
    await server.command(...documentedUser(), '+cluster|slots')
    writer = await connect(server.url, { label: 'writer' })
    scene = await play(writer)
  })
  afterAll(async () => {
    await scene.end()
    await writer.close()
    await server.close()
  })

  test.each(Object.entries(clients))('a user with +@read sees all keys through %s', async (_, newClient) => {
    const looker = createLocks(redisStore(newClient(urlOf(server)), { readOnly: true }))
    await server.command('CONFIG', 'RESETSTAT')
    await showsTheSame(looker, writer)
    expect(await looker.caveats()).toEqual([])
    const asked = Object.keys(await server.commandStats())
    expect(asked).toEqual(expect.arrayContaining(['get', 'hello', 'pttl', 'scan', 'type', 'zrange']))
    await looker.close()
    // The server logs each command that the user may not send.
    expect(await server.command('ACL', 'LOG')).toEqual([])
  })

  test('a call that would change something is refused before it is sent', async () => {
    await using looker = await connect(server.url, { readOnly: true })
    const refused = { code: 'store-refused', message: expect.stringContaining('`readOnly`') }
    await expect(looker.acquire('free')).rejects.toMatchObject({ ...refused, key: 'free' })
    await expect(looker.evictAll('mutex', { reason: 'test' })).rejects.toMatchObject(refused)
    await expect(looker.check()).rejects.toMatchObject(refused)
    expect((await looker.peek('mutex'))?.holders).toHaveLength(1)
    await looker.waitUntilFree('free', { wait: 0 })
  })

  test('a replica shows what it has, and says that it is one', async () => {
    await using replica = await startRedis({ replicaOf: server })
    await replica.command(...documentedUser())
    await replica.follows(server)
    await using looker = await connect(urlOf(replica), { readOnly: true })
    await showsTheSame(looker, writer)
    expect(await looker.caveats()).toEqual([expect.stringContaining('is a replica')])
    await using writable = await connect(server.url)
    expect(await writable.caveats()).toEqual([])
    await expect(connect(replica.url)).rejects.toMatchObject({ code: 'store-unavailable' })
  })

  test('a wrong password is told at once, and not a look as another user', async () => {
    const wrong = urlOf(server).replace('a-good-password', 'wrong')
    await expect(connect(wrong, { readOnly: true })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('did not accept the user name and password'),
    })
  })

  test('a user who may not even look is told so at once', async () => {
    await server.command('ACL', 'SETUSER', 'nobody', 'on', '>secret', '+ping')
    const nobody = connect(`redis://nobody:secret@127.0.0.1:${server.port}`, { readOnly: true })
    await expect(nobody).rejects.toMatchObject({ code: 'store-refused' })
    await server.command('ACL', 'LOG', 'RESET')
  })
})

test('on a Redis Cluster a user with +@read and +cluster|slots sees all keys', async () => {
  await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  for (const { command } of cluster.servers) await command(...documentedUser(), '+cluster|slots')
  const hosts = cluster.servers.map(({ port }) => `127.0.0.1:${port}`).join(',')
  await using writer = await connect(`redis+cluster://${hosts}`, { label: 'writer' })
  const scene = await play(writer)
  await using looker = await connect(`redis+cluster://viewer:a-good-password@${hosts}`, { readOnly: true })
  await showsTheSame(looker, writer)
  expect(await looker.caveats()).toEqual([])
  await scene.end()
})

describe('on PostgreSQL', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
    await server.sql('create role viewer login')
  })
  afterAll(() => server.close())
  const viewer = (at: PostgresServer): string => at.url.replace('holdfast@', 'viewer@')

  test('where nobody has used the store, there are no keys, and no tables are made', async () => {
    await using looker = await connect(viewer(server), { readOnly: true })
    expect(await roomsOf(looker)).toEqual([])
    expect(await looker.peek('mutex')).toBeNull()
    const [found] = await server.sql<{ schema: string | null }>(
      `select to_regnamespace('holdfast') as schema`,
    )
    expect(found?.schema).toBeNull()
  })

  test('a role that may only select sees all keys, also on a standby, which says that it is one', async () => {
    await using writer = await connect(server.url, { label: 'writer' })
    const scene = await play(writer)
    const [, grants = ''] = /```sql viewer\n(.*?)```/s.exec(page) ?? []
    await server.sql(grants)
    await using looker = await connect(viewer(server), { readOnly: true })
    await showsTheSame(looker, writer)
    expect(await looker.caveats()).toEqual([])
    const client = new pg.Client({ connectionString: viewer(server) })
    await client.connect()
    await expect(client.query('delete from holdfast.lock_holders')).rejects.toThrow('permission denied')
    await client.end()
    await using standby = await startPostgres({ standbyOf: server })
    await using behind = await connect(viewer(standby), { readOnly: true })
    await until(
      'the standby has it',
      async () => (await roomsOf(behind)).length === (await roomsOf(writer)).length,
    )
    await showsTheSame(behind, writer)
    expect(await behind.caveats()).toEqual([expect.stringContaining('is a standby')])
    await scene.end()
  })
})

test('on etcd a role that may only read sees all keys, and writes nothing before anybody else has', async () => {
  await using server = await startEtcd()
  const token = await server.enableAuth('root')
  const perm = { permType: 'READ', key: base64('holdfast/'), range_end: base64('holdfast0') }
  await server.call('/v3/auth/role/add', { name: 'viewer' }, { token })
  await server.call('/v3/auth/role/grant', { name: 'viewer', perm }, { token })
  await server.call('/v3/auth/user/add', { name: 'viewer', password: 'secret' }, { token })
  await server.call('/v3/auth/user/grant', { user: 'viewer', role: 'viewer' }, { token })
  const at = `127.0.0.1:${server.port}`
  await using looker = await connect(`etcd://viewer:secret@${at}`, { readOnly: true })
  expect(await roomsOf(looker)).toEqual([])
  await using writer = await connect(`etcd://root:root@${at}`, { label: 'writer' })
  const scene = await play(writer)
  await showsTheSame(looker, writer)
  await scene.end()
})

test('an option that is neither true nor false is refused', async () => {
  const wrong = connect('memory:', { readOnly: 'yes' as unknown as boolean })
  await expect(wrong).rejects.toThrow('Expected `readOnly` to be true or false, got "yes".')
})

interface Scene {
  end(): Promise<void>
}

/** Keys in every state: a holder alone, with waiters, several holders, a minimum hold that goes on, and a lock-delay. */
async function play(locks: Locks): Promise<Scene> {
  const leases = [
    await locks.acquire('lone', { ttl: '10m' }),
    await locks.acquire('mutex', { ttl: '10m' }),
    await locks.readWrite('shared').acquireRead({ ttl: '10m' }),
    await locks.readWrite('shared').acquireRead({ ttl: '10m' }),
    await locks.acquire('delayed', { ttl: '10m', lockDelay: '10m' }),
    await locks.acquire('closed', { ttl: '10m', lockDelay: '10m' }),
  ]
  await (await locks.acquire('leaving', { minHold: '10m' })).release()
  const giveUp = new AbortController()
  const waiting = [1, 2, 3].map(() =>
    locks.acquire('mutex', { wait: Infinity, signal: giveUp.signal }).catch(() => {}),
  )
  await until('they wait', async () => (await locks.peek('mutex'))?.queue.length === 3)
  await locks.evictAll('closed', { reason: 'test' })
  return {
    async end() {
      giveUp.abort()
      await Promise.all(waiting)
      await Promise.all(leases.map((lease) => lease.release()))
    },
  }
}

async function showsTheSame(looker: Locks, writer: Locks): Promise<void> {
  const expected = await roomsOf(writer)
  const seen = await roomsOf(looker)
  expect(seen.map(steady)).toEqual(expected.map(steady))
  expect(expected.map(({ key }) => key)).toEqual(['closed', 'delayed', 'leaving', 'lone', 'mutex', 'shared'])
  for (const [index, room] of seen.entries()) {
    expect(steady((await looker.peek(room.key)) as InspectedRoom)).toEqual(steady(room))
    // Both looks have the time of the store, and the second one is later.
    for (const [at, { heldMs, remainingMs }] of room.holders.entries()) {
      expect(heldMs).toBeGreaterThanOrEqual((expected[index]?.holders[at]?.heldMs ?? 0) - CLOCK_MS)
      expect(remainingMs).toBeGreaterThan(0)
      expect(remainingMs).toBeLessThanOrEqual(600_000 + CLOCK_MS)
    }
  }
}

/** The times of a replica are those of its own clock, which is the same here. PTTL is in whole milliseconds. */
const CLOCK_MS = 1000

/** What does not change from one look to the next. */
function steady({ key, holders, queue, closedMs }: InspectedRoom): object {
  return {
    key,
    holders: holders.map(({ heldMs, remainingMs, ...rest }) => rest),
    queue: queue.map(({ waitedMs, ...rest }) => rest),
    isClosed: closedMs > 0,
  }
}

async function roomsOf(locks: Locks): Promise<readonly InspectedRoom[]> {
  const rooms: InspectedRoom[] = []
  for await (const room of locks.inspect()) rooms.push(room)
  return rooms.sort((one, other) => (one.key < other.key ? -1 : 1))
}

function documentedUser(): readonly string[] {
  return (/^ACL SETUSER viewer .*$/m.exec(page)?.[0] ?? '').split(' ')
}

function urlOf({ port }: RedisServer): string {
  return `redis://viewer:a-good-password@127.0.0.1:${port}`
}
