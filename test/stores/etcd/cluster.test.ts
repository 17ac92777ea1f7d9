import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createLocks, type Locks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { shortestMs } from '../../base/measured.ts'
import { type EtcdCluster, type EtcdServer, startEtcdCluster } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'

let cluster: EtcdCluster
beforeAll(async () => {
  cluster = await startEtcdCluster()
})
afterAll(() => cluster.close())

const opened: Locks[] = []
const children: ChildProcess[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()))
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

/** Locks of a store that asks this endpoint first. */
function locksFrom(first: string): Locks {
  const endpoints = [first, ...cluster.urls.filter((url) => url !== first)]
  const locks = createLocks(etcdStore({ endpoints }))
  opened.push(locks)
  return locks
}

async function roomsOf(locks: Locks, prefix: string): Promise<unknown[]> {
  const rooms: unknown[] = []
  for await (const room of locks.inspect({ prefix })) rooms.push(room)
  return rooms
}

test('a leader that is killed in the middle of everything: one holder at a time, fences rise, nothing is left', async () => {
  const clients = cluster.urls.map(locksFrom)
  let inside = 0
  let most = 0
  let isOver = false
  const fences: bigint[] = []
  let lost = 0
  const work = async (locks: Locks) => {
    while (!isOver) {
      try {
        await locks.withLock('busy', { ttl: '15s', wait: '25s' }, async (lease) => {
          inside += 1
          most = Math.max(most, inside)
          fences.push(lease.fence)
          if (fences.length % 10 === 0) await lease.extend()
          await new Promise((resolve) => setImmediate(resolve))
          inside -= 1
        })
      } catch (error) {
        lost += 1
        if (lost > 10) throw error
      }
    }
  }
  const working = Promise.all([...clients, ...clients].map(work))
  for (let kills = 0; kills < 2; kills += 1) {
    const before = fences.length
    await until('there is progress', () => fences.length > before + 50)
    const leader = await cluster.leader()
    await leader.kill()
    const since = fences.length
    await until('it goes on without the old leader', () => fences.length > since + 50)
    await leader.restart()
  }
  isOver = true
  await working
  expect([most, lost]).toEqual([1, 0])
  expect(fences).toEqual([...fences].sort((one, other) => (one < other ? -1 : 1)))
  expect(new Set(fences).size).toBe(fences.length)
  expect(await roomsOf(clients[0] as Locks, 'busy')).toEqual([])
})

test('a leader that is killed in the middle of an acquire, a renewal and a release: each has a single effect', async () => {
  const leader = await cluster.leader()
  const followers = cluster.members.filter((member) => member !== leader)
  const [locks, other] = [locksFrom(leader.url), locksFrom((followers[0] as EtcdServer).url)]
  const kept = await locks.acquire('renewed', { ttl: '40s' })
  const given = await locks.acquire('given back', { ttl: '40s' })
  const waiting = other.acquire('given back', { wait: '60s', ttl: '40s' })
  await until('it waits', async () =>
    JSON.stringify(await roomsOf(other, 'given back'), show).includes('waitedMs'),
  )
  const asked = async () => (await leader.messages())['Txn'] ?? 0
  const before = await asked()
  // Without its followers the leader decides no request, but its followers may have a request in their queues.
  for (const follower of followers) await follower.pause()
  const acquiring = locks.acquire('taken', { wait: '60s', ttl: '40s' })
  const extending = kept.extend().catch((error: unknown) => error)
  const releasing = given.release()
  try {
    await until('the leader has been asked all three', async () => (await asked()) >= before + 3)
    await leader.kill()
  } finally {
    for (const follower of followers) follower.resume()
  }
  const [taken] = await Promise.all([acquiring, extending, releasing])
  await until('it is renewed', () =>
    kept.extend().then(
      () => true,
      () => false,
    ),
  )
  expect(kept.state).toBe('held')
  const next = await waiting
  expect(next.fence).toBeGreaterThan(given.fence)
  const held = [kept, taken, next].map(({ key, id, fence }) => ({ key, queue: [], holders: [{ id, fence }] }))
  expect(await roomsOf(other, '')).toMatchObject(held.sort((one, two) => (one.key < two.key ? -1 : 1)))
  for (const lease of [kept, taken, next]) await lease.release()
  await leader.restart()
  expect(await roomsOf(other, '')).toEqual([])
})

test('a member that hangs: its clients go on with the others, holders keep their leases and waiters are woken', async () => {
  const hanging = await cluster.follower()
  const [locks, other] = [
    locksFrom(hanging.url),
    locksFrom(cluster.urls.find((url) => url !== hanging.url) as string),
  ]
  const kept = await locks.acquire('kept', { ttl: '30s' })
  const lease = await other.acquire('handed-over')
  const waiting = locks.acquire('handed-over')
  await until('it waits', async () =>
    JSON.stringify(await roomsOf(other, 'handed-over'), show).includes('waitedMs'),
  )
  await hanging.pause()
  try {
    await lease.release()
    const next = await waiting
    expect(next.fence).toBeGreaterThan(lease.fence)
    await kept.extend()
    expect(kept.state).toBe('held')
    await next.release()
    await kept.release()
  } finally {
    hanging.resume()
  }
})

test('without a majority: an error in time, and a holder that is told in time; with it again all goes on', async () => {
  const [alive, ...others] = cluster.members
  if (alive === undefined) throw new Error('no member')
  const locks = createLocks(etcdStore({ endpoints: [alive.url] }))
  opened.push(locks)
  const lease = await locks.acquire('minority', { ttl: '3s' })
  const waiting = locks.acquire('minority', { wait: '2m' })
  const told = new Promise((tell) => lease.signal.addEventListener('abort', () => tell(lease.signal.reason)))
  await Promise.all(others.map((member) => member.kill()))
  const tookMs = await shortestMs(4000, async () => {
    const from = performance.now()
    await expect(locks.acquire('another', { wait: '1s' })).rejects.toMatchObject({
      code: 'store-unavailable',
    })
    return performance.now() - from
  })
  expect(tookMs).toBeLessThan(4000)
  expect(await told).toMatchObject({ reason: 'expired' })
  await Promise.all(others.map((member) => member.restart()))
  const next = await waiting
  expect(next.fence).toBeGreaterThan(lease.fence)
  await next.release()
  await until('nothing is left', async () => (await roomsOf(locks, '')).length === 0)
})

test.each(['SIGKILL', 'SIGSTOP'] as const)(
  'a process that got a %s loses all it holds and all its places, and a frozen one knows when it wakes up',
  async (signal) => {
    const locks = locksFrom(cluster.urls[0] as string)
    const child = spawn(process.execPath, [
      ...['--import', import.meta.resolve('tsx')],
      fileURLToPath(new URL('holder.ts', import.meta.url)),
      ...cluster.urls,
    ])
    children.push(child)
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk
    })
    await until('it holds one key and waits for the other', () => output.includes('waiting'))
    const other = await locks.acquire('second', { wait: '1s' }).catch(() => undefined)
    expect(other).toBeUndefined()
    child.kill(signal)
    const [first, second] = await Promise.all([
      locks.acquire('first', { wait: '60s' }),
      locks.acquire('second', { wait: '60s' }),
    ])
    if (signal === 'SIGSTOP') {
      child.kill('SIGCONT')
      await until('it has been told', () => output.includes('lost'))
    }
    await first.release()
    await second.release()
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  },
)

function show(_: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}
