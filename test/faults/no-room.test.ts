import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { expect, test } from 'vitest'
import { createLocks, isHoldfastError, type Lease, type Locks } from '../../src/index.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { base64, type EtcdServer, startEtcd } from '../servers/etcd-server.ts'
import { owner, startPostgres } from '../servers/postgres-server.ts'
import { PATIENT_MASTERS, startCluster } from '../servers/redis-cluster.ts'
import { until } from '../servers/until.ts'
import { newClusterClient } from '../stores/redis/cluster/clients.ts'
import { startMasters } from '../stores/redlock/masters.ts'

test.concurrent('a full disk under PostgreSQL: new keys fail in time, holders go on, and all is well once there is room', async () => {
  await using disk = smallDisk()
  await using server = await startPostgres()
  await server.sql(`create tablespace small location '${disk.folder}'`)
  await server.sql('alter database holdfast set default_tablespace = small')
  await using locks = createLocks(postgresStore(new pg.Pool({ connectionString: server.url })))
  const lease = await locks.acquire('held', { ttl: '12s' })
  await server.sql('create table filler (text text); alter table filler alter text set storage external')
  const fill = () => server.sql("insert into filler select repeat('x', 7000) from generate_series(1, 20)")
  await until('the disk is full', () => fill().then(isFalse, isDiskFull))
  await outlives(lease, 12_000)
  // Tables have a little room left in their last pages. Then somebody hears of the disk.
  const taken = await takenUntilRefused(locks, /no room left/)
  await server.sql('drop table filler')
  await worksAgain(locks, [lease, ...taken])
})

test.concurrent('a full etcd: new keys fail in time, a holder goes on and gives back, and all is well once there is room', async () => {
  await using server = await startEtcd({ args: ['--quota-backend-bytes', String(2 * MIB)] })
  await using locks = createLocks(etcdStore({ endpoints: [server.url] }))
  const lease = await locks.acquire('held', { ttl: '12s' })
  const wanted = await locks.acquire('wanted', { ttl: '60s' })
  const next = locks.acquire('wanted', { wait: '90s', ttl: '60s' }).catch((error: unknown) => error)
  await until('it waits', async () => {
    for await (const { queue } of locks.inspect({ prefix: 'wanted' })) if (queue.length === 1) return true
    return false
  })
  await fillEtcd(server)
  await outlives(lease, 12_000)
  const taken = await takenUntilRefused(locks, /etcd has no space left/)
  expect(taken).toEqual([])
  // To give back needs no room, and to hand over does.
  const from = performance.now()
  await Promise.all([lease.release(), wanted.release()])
  for await (const { holders } of locks.inspect({ prefix: 'held' })) expect(holders).toEqual([])
  expect(await next).toMatchObject({ code: 'store-refused' })
  // Long before the ttl of the one that has given back.
  expect(performance.now() - from).toBeLessThan(20_000)
  // The one that was refused leaves nothing behind.
  await until(
    'the key is free',
    async () => {
      for await (const { holders } of locks.inspect({ prefix: 'wanted' }))
        if (holders.length > 0) return false
      return true
    },
    { withinMs: 15_000 },
  )
  await emptyEtcd(server)
  await worksAgain(locks, [])
})

test.concurrent('one full master of a cluster refuses its own keys and no others', async () => {
  await using cluster = await startCluster({
    replicas: 0,
    args: [...PATIENT_MASTERS, '--maxmemory-policy', 'noeviction'],
  })
  await using locks = createLocks(redisStore(newClusterClient(cluster)))
  const lease = await locks.acquire('held', { ttl: '12s' })
  const full = await cluster.masterOf('holdfast:{held}')
  const keys = Array.from({ length: 20 }, (_, index) => `key:${index}`)
  const owners = await Promise.all(keys.map((key) => cluster.masterOf(`holdfast:{${key}}`)))
  await full.command('CONFIG', 'SET', 'maxmemory', '1')
  for (const [index, key] of keys.entries()) {
    const taken = await locks.acquire(key, { wait: '30s' }).catch((error: unknown) => error)
    if (owners[index] === full) {
      expect(taken).toMatchObject({ code: 'store-refused', message: expect.stringContaining('maxmemory') })
    } else await (taken as Lease).release()
  }
  await outlives(lease, 12_000)
  await full.command('CONFIG', 'SET', 'maxmemory', '0')
  await worksAgain(locks, [lease])
})

test.concurrent('full masters of redlock count as away: a minority costs nothing, and a majority refuses', async () => {
  await using masters = await startMasters(3, { args: ['--maxmemory-policy', 'noeviction'] })
  await using locks = createLocks(masters.store())
  const lease = await locks.acquire('held', { ttl: '12s' })
  await masters.servers[0]?.command('CONFIG', 'SET', 'maxmemory', '1')
  await locks.withLock('with two of three', () => {})
  await masters.servers[1]?.command('CONFIG', 'SET', 'maxmemory', '1')
  const refused = await locks.acquire('with one of three', { wait: '3s' }).catch((error: unknown) => error)
  expect(isHoldfastError(refused)).toBe(true)
  await outlives(lease, 12_000)
  for (const server of masters.servers) await server.command('CONFIG', 'SET', 'maxmemory', '0')
  await worksAgain(locks, [lease])
})

const MIB = 1_048_576

/** The lease is renewed, and so it is still there when its first ttl is over. */
async function outlives(lease: Lease, ttlMs: number): Promise<void> {
  const over = performance.now() + ttlMs
  await until('the first ttl of the lease is over', () => performance.now() > over)
  lease.assertHeld()
}

/** Takes keys until one is refused, which has to be said in one sentence and in time. */
async function takenUntilRefused(locks: Locks, why: RegExp): Promise<Lease[]> {
  const taken: Lease[] = []
  for (let number = 0; number < 5000; number += 1) {
    const startedAt = performance.now()
    try {
      taken.push(await locks.acquire(`new:${number}`, { wait: '30s', ttl: '60s' }))
    } catch (error) {
      expect(isHoldfastError(error), String(error)).toBe(true)
      expect((error as Error).message).toMatch(why)
      expect((error as Error).message.length).toBeLessThan(500)
      expect(performance.now() - startedAt).toBeLessThan(60_000)
      return taken
    }
  }
  throw new Error('Expected a key to be refused, got 5000 keys')
}

/** Keys are taken and handed over, and nothing stays behind. */
async function worksAgain(locks: Locks, leases: readonly Lease[]): Promise<void> {
  await until('a key is free again', () =>
    locks.tryAcquire('after').then((one) => one?.release().then(() => true), isFalse),
  )
  for (const lease of leases) await lease.release()
  const held = await locks.acquire('held')
  const next = locks.acquire('held')
  await held.release()
  await (await next).release()
  await until('nothing is left', async () => {
    for await (const { holders, queue } of locks.inspect())
      if (holders.length + queue.length > 0) return false
    return true
  })
}

function isFalse(): false {
  return false
}

function isDiskFull(error: unknown): true {
  expect(String(error)).toMatch(/No space left on device|File too large/)
  return true
}

/** A file system of four megabytes, for the user that the servers run as. */
function smallDisk(): AsyncDisposable & { readonly folder: string } {
  const mountPoint = mkdtempSync(join(tmpdir(), 'holdfast-small-disk-'))
  const { uid, gid } = owner() ?? { uid: process.getuid?.(), gid: process.getgid?.() }
  run('mount', ['-t', 'tmpfs', '-o', `size=4m,uid=${uid},gid=${gid},mode=700`, 'tmpfs', mountPoint])
  return {
    folder: mountPoint,
    async [Symbol.asyncDispose]() {
      run('umount', ['--lazy', mountPoint])
      rmSync(mountPoint, { recursive: true, force: true })
    },
  }
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}`)
}

async function fillEtcd(server: EtcdServer): Promise<void> {
  const value = base64('x'.repeat(100_000))
  await until('etcd is full', async () => {
    for (let number = 0; number < 40; number += 1) {
      const full = await server
        .call('/v3/kv/put', { key: base64(`filler/${number}`), value })
        .then(isFalse, (error: unknown) => /space exceeded/.test(String(error)))
      if (full) return true
    }
    return false
  })
}

async function emptyEtcd(server: EtcdServer): Promise<void> {
  await server.call('/v3/kv/deleterange', { key: base64('filler/'), range_end: base64('filler0') })
  const status = await server.call('/v3/maintenance/status')
  const { revision, member_id } = status['header'] as { revision: string; member_id: string }
  await server.call('/v3/kv/compaction', { revision, physical: true })
  await server.call('/v3/maintenance/defragment')
  await server.call('/v3/maintenance/alarm', { action: 'DEACTIVATE', memberID: member_id, alarm: 'NOSPACE' })
}
