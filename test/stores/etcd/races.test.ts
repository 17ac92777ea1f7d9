import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { StoreError } from '../../../src/errors.ts'
import { acquire } from '../../../src/stores/etcd/acquire.ts'
import { answerFound } from '../../../src/stores/etcd/answer.ts'
import { evict } from '../../../src/stores/etcd/evict.ts'
import { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import { type KeyValue, WATCH } from '../../../src/stores/etcd/grpc/messages.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { release } from '../../../src/stores/etcd/release.ts'
import { renew } from '../../../src/stores/etcd/renew.ts'
import type { OwnTicket } from '../../../src/stores/etcd/session/own-ticket.ts'
import { Session } from '../../../src/stores/etcd/session/session.ts'
import { awakeMs } from '../../base/measured.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'
import { passed } from './passed.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
let store: Store
beforeAll(async () => {
  server = await startEtcd()
  store = etcdStore({ endpoints: [server.url] })
})
afterAll(async () => {
  await store.close()
  await server.close()
})

function newSession(cluster: Cluster = newCluster()): Session {
  const session = new Session(cluster, PREFIX)
  onTestFinished(() => session.close())
  return session
}

function newCluster({ url } = server): Cluster {
  return new Cluster({ endpoints: [url], auth: undefined, tls: {}, prefix: PREFIX })
}

const PREFIX = 'holdfast/'

/** The watch tells nothing before the returned function is called. */
function delayWatch(cluster: Cluster): () => void {
  const openStream = cluster.openStream.bind(cluster)
  let openWatch = () => {}
  const isOpen = new Promise<void>((resolve) => {
    openWatch = resolve
  })
  vi.spyOn(cluster, 'openStream').mockImplementation(async (method, listener) => {
    if (method === (WATCH as unknown)) await isOpen
    return openStream(method, listener)
  })
  return openWatch
}

test('a holder that renews while it is released before its minimum hold is over holds no longer', async () => {
  for (let round = 0; round < 10; round += 1) {
    const mine = ticket({ minHoldMs: 30_000 })
    fenceOf(await store.acquire(mine))
    await Promise.all([store.renew([mine]), store.release(releaseOf(mine))])
    expect(await store.renew([mine])).toEqual([{ tag: 'gone', evicted: false }])
  }
})

test('a fence is counted from the base that its own transaction has compared, although the base is deleted meanwhile', async () => {
  await using own = await startEtcd()
  const session = newSession(newCluster(own))
  const [before, slow, next] = [ticket(), ticket({ patienceMs: 0 }), ticket()]
  const base = fenceOf(await acquire(session, before)) - revisionOf(session, before)
  const transact = session.transact.bind(session)
  vi.spyOn(session, 'transact').mockImplementationOnce(async (request) => {
    const told = await transact(request)
    await own.call('/v3/kv/deleterange', { key: base64('holdfast/meta') })
    fenceOf(await acquire(session, next))
    return told
  })
  const fence = fenceOf(await acquire(session, slow))
  expect(fence - revisionOf(session, slow)).toBe(base)
  expect(session.tickets.get(next.id)?.fence).toBeGreaterThan(fence)
})

function revisionOf(session: Session, { id }: Ticket): bigint {
  return BigInt(session.tickets.get(id)?.createRevision ?? 0)
}

test('a holder that is released while the lease of its minimum hold is granted holds no longer', async () => {
  const session = newSession()
  const mine = ticket({ key: 'pinned', minHoldMs: 30_000 })
  const expiring = session.leases.expiring.bind(session.leases)
  vi.spyOn(session.leases, 'expiring').mockImplementationOnce(async (durationMs) => {
    const lease = await expiring(durationMs)
    expect(await release(session, releaseOf(mine))).toEqual({ was: 'held' })
    return lease
  })
  expect(await acquire(session, mine)).toEqual({ tag: 'gone', evicted: false })
  expect(session.tickets.get(mine.id)?.state.tag).toBe('leaving')
})

test('a deletion that takes long delays no renewal of other tickets, and lets the next one in when it is done', async () => {
  const session = newSession()
  const woken: string[] = []
  session.listen((wake) => wake.tag === 'ticket' && woken.push(wake.id))
  const key = 'slow deletion'
  const [over, next, other] = [ticket({ key, ttlMs: 4000 }), ticket({ key, patienceMs: 60_000 }), ticket()]
  const fence = fenceOf(await acquire(session, other))
  fenceOf(await acquire(session, over))
  expect(await acquire(session, next)).toMatchObject({ tag: 'queued' })
  const slow = slowDeletion(session)
  await until('its time is over', () => session.tickets.get(over.id)?.state.tag === 'ending')
  let answers: unknown
  const tookMs = await awakeMs(async () => {
    answers = await Promise.race([renew(session, [other, next, over]), passed(5000)])
  })
  // Half a second, and some requests.
  expect(tookMs).toBeLessThan(3000)
  const askAgainMs = expect.closeTo(200, -2)
  expect(answers).toMatchObject([{ tag: 'held', fence }, { tag: 'queued', askAgainMs }, { tag: 'gone' }])
  slow.goOn()
  await until('the next one is woken', () => woken.includes(next.id))
  expect(fenceOf((await renew(session, [next]))[0])).toBeGreaterThan(fence)
})

// On a busy machine its time may be over before the failure to rebind is met.
test('a ticket that asks again while its key is slowly deleted comes anew, and nobody deletes its new key', {
  retry: 3,
}, async () => {
  const session = newSession()
  const key = `again while deleted ${crypto.randomUUID()}`
  const over = ticket({ key, ttlMs: 2000, minHoldMs: 1900 })
  const next = ticket({ key })
  const fence = fenceOf(await acquire(session, over))
  expect(await acquire(session, next)).toMatchObject({ tag: 'queued' })
  failToRebind(session)
  const slow = slowDeletion(session)
  await until('its time is over', () => session.tickets.get(over.id)?.state.tag === 'ending')
  const again = acquire(session, over)
  expect(await Promise.race([again, passed(1500)])).toBeUndefined()
  slow.goOn()
  expect(await again).toMatchObject({ tag: 'queued' })
  expect(fenceOf((await renew(session, [next]))[0])).toBeGreaterThan(fence)
})

// On a busy machine etcd may end the old lease, and with it the key, before the key is taken anew.
test('the deletion of a ticket that was taken anew under another lease leaves its key alone', {
  retry: 3,
}, async () => {
  const session = newSession()
  // What an attempt before has left must not count.
  const key = `taken anew ${crypto.randomUUID()}`
  // With a lock-delay, the lease of its minimum hold outlasts the test on a busy machine.
  const mine = ticket({ key, ttlMs: 2000, minHoldMs: 1900, lockDelayMs: 20_000 })
  const next = ticket({ key })
  fenceOf(await acquire(session, mine))
  const before = session.tickets.get(mine.id) as OwnTicket
  expect(await acquire(session, next)).toMatchObject({ tag: 'queued' })
  failToRebind(session)
  const slow = slowDeletion(session)
  await until('its time is over', () => before.state.tag === 'ending')
  const { pairs } = await session.read({ key: before.name })
  fenceOf(await answerFound(session, pairs[0] as KeyValue, mine, { isInDoubt: false }))
  expect(session.tickets.get(mine.id)).not.toBe(before)
  slow.goOn()
  expect(before.state.tag).toBe('forgotten')
  await slow.done
  expect((await session.read({ key: before.name })).pairs).toHaveLength(1)
  expect(session.tickets.get(next.id)?.state.tag).toBe('waiting')
  fenceOf((await renew(session, [mine]))[0])
})

/** The next deletion of a key whose time is over is sent once `goOn` is called. */
function slowDeletion(session: Session): { readonly goOn: () => void; readonly done: Promise<void> } {
  const change = session.keys.change.bind(session.keys)
  let goOn = () => {}
  const slow = new Promise<void>((resolve) => {
    goOn = resolve
  })
  let isDone = () => {}
  const done = new Promise<void>((resolve) => {
    isDone = resolve
  })
  const changing = vi.spyOn(session.keys, 'change').mockImplementation(async (own, plan) => {
    if (!plan(0).apply.some(({ tag }) => tag === 'delete')) return change(own, plan)
    changing.mockRestore()
    await slow
    // Its caller goes on before this.
    return change(own, plan).finally(() => setImmediate(isDone))
  })
  return { goOn, done }
}

/** The key of a holder stays under the lease of its minimum hold, although that is over. */
function failToRebind(session: Session): void {
  vi.spyOn(session.leases, 'shared').mockRejectedValueOnce(new Error('etcd does not answer'))
}

test.each([true, false])(
  'where etcd takes no tombstone, a ticket in doubt is deleted, and what a late request writes is deleted later: cancel %s',
  async (cancel) => {
    const cluster = newCluster()
    const session = newSession(cluster)
    const [mine, other] = [ticket({ ttlMs: 4000, patienceMs: 0 }), ticket({ ttlMs: 4000 })]
    for (const one of [mine, other]) fenceOf(await acquire(session, one))
    const own = session.tickets.get(mine.id) as OwnTicket
    const { name, binding } = own
    own.putInDoubt()
    const ask = cluster.ask.bind(cluster)
    vi.spyOn(cluster, 'ask').mockImplementation(async (method, request) => {
      if (JSON.stringify(request).includes('gone')) throw new StoreError('store-refused', 'no space left')
      return ask(method, request)
    })
    const kept = await session.read({ key: name })
    expect(await release(session, { ...releaseOf(mine), cancel })).toEqual({ was: 'held' })
    expect((await session.read({ key: name })).pairs).toEqual([])
    const late = {
      tag: 'put',
      key: name,
      value: kept.pairs[0]?.value ?? '',
      lease: binding.lease.id,
    } as const
    await session.transact({ when: [], apply: [late], otherwise: [] })
    await until('it is deleted', async () => {
      // So the lease lives on.
      fenceOf((await renew(session, [other]))[0])
      return (await session.read({ key: name })).pairs.length === 0
    })
    expect(binding.lease.isLost).toBe(false)
  },
)

test('a waiter whose turn comes while its lease is kept alive is told so', async () => {
  const session = newSession()
  const [holder, waiter] = [ticket({ key: 'lease' }), ticket({ key: 'lease' })]
  fenceOf(await store.acquire(holder))
  expect(await acquire(session, waiter)).toMatchObject({ tag: 'queued' })
  const own = session.tickets.get(waiter.id)
  vi.spyOn(session.leases, 'ensure').mockImplementationOnce(async () => {
    await store.release(releaseOf(holder))
    await until('it is its turn', () => own?.state.tag === 'offered')
  })
  const [answer] = await renew(session, [waiter])
  fenceOf(answer)
})

test('a ticket that was released and asks again stays, although a late watch tells of both at once', async () => {
  const cluster = newCluster()
  const session = newSession(cluster)
  const woken: unknown[] = []
  session.listen((wake) => woken.push(wake))
  const openWatch = delayWatch(cluster)
  const key = 'told-at-once'
  const [reader, again] = [
    ticket({ key, limit: UNLIMITED }),
    ticket({ key, limit: UNLIMITED, patienceMs: 0 }),
  ]
  const [writer, next] = [ticket({ key }), ticket({ key })]
  for (const one of [reader, again]) fenceOf(await acquire(session, one))
  // Its room is watched from now on.
  expect(await acquire(session, writer)).toMatchObject({ tag: 'queued' })
  for (const one of [writer, again]) await release(session, releaseOf(one))
  const fence = fenceOf(await acquire(session, again))
  const revision = session.tickets.get(again.id)?.createRevision ?? Number.NaN
  openWatch()
  await until('the watch has told of it', () => (session.rooms.get(key)?.revision ?? 0) >= revision)
  expect(session.tickets.get(again.id)?.state.tag).toBe('held')
  expect(woken).toEqual([])
  expect(fenceOf((await renew(session, [again]))[0])).toBe(fence)
  expect(await acquire(session, next)).toMatchObject({ tag: 'queued' })
})

test.each([1, 2])(
  'a lock-delay of a holder that expires keeps out the next waiter of its own process, although the watch is late: %i at once',
  async (limit) => {
    const cluster = newCluster()
    const session = newSession(cluster)
    const openWatch = delayWatch(cluster)
    const key = `delayed-${limit}`
    const draft = { key, limit, patienceMs: 60_000, acceptMs: 30_000 }
    const [holder, ...besides] = [
      ticket({ ...draft, ttlMs: 4000, lockDelayMs: 5000 }),
      ...Array.from({ length: limit - 1 }, () => ticket(draft)),
    ] as const
    const waiter = ticket(draft)
    for (const one of [holder, ...besides]) fenceOf(await acquire(session, one))
    expect(await acquire(session, waiter)).toMatchObject({ tag: 'queued' })
    await until('the holder has expired', () => !session.tickets.has(holder.id))
    const from = performance.now()
    for (const one of besides) await release(session, releaseOf(one))
    expect(session.tickets.get(waiter.id)?.state.tag).toBe('waiting')
    await until('the next one is let in', () => session.tickets.get(waiter.id)?.state.tag === 'offered')
    expect(performance.now() - from).toBeGreaterThan(2000)
    openWatch()
    fenceOf((await renew(session, [waiter]))[0])
  },
)

describe('an eviction of those that wait', () => {
  // Another process holds. A process that admits a waiter of its own also writes the waiter's key, and that alone
  // would stop the eviction.
  let other: Store
  beforeEach(() => {
    other = etcdStore({ endpoints: [server.url] })
  })
  afterEach(() => other.close())

  /** Evicts in a session of its own, and runs `act` once between the read of the room and the transaction. */
  async function evictWaiters(
    { key, id }: { key: string; id: string | undefined },
    act: () => Promise<unknown>,
    { inTransaction = 1 } = {},
  ): Promise<readonly string[]> {
    const session = newSession()
    const tombstones = session.leases.tombstones.bind(session.leases)
    let transactions = 0
    vi.spyOn(session.leases, 'tombstones').mockImplementation(async (durationMs) => {
      transactions += 1
      if (transactions === inTransaction) await act()
      return tombstones(durationMs)
    })
    const evicted = await evict(session, { key, id, reason: 'too late', onlyIfWaiting: true })
    expect(transactions).toBeGreaterThanOrEqual(inTransaction)
    return evicted
  }

  async function queueBehind(holder: Ticket, count: number): Promise<readonly Ticket[]> {
    fenceOf(await other.acquire(holder))
    const waiters = Array.from({ length: count }, () =>
      ticket({ key: holder.key, patienceMs: 60_000, acceptMs: 30_000 }),
    )
    for (const waiter of waiters) expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued' })
    return waiters
  }

  test('leaves a waiter alone that becomes the holder before the eviction is written', async () => {
    const holder = ticket({ key: 'given way' })
    const [next] = (await queueBehind(holder, 1)) as [Ticket]
    expect(await evictWaiters(next, async () => other.release(releaseOf(holder)))).toEqual([])
    const [renewed] = await store.renew([next])
    expect(fenceOf(await store.acquire(next))).toBe(fenceOf(renewed))
  })

  test('evicts a waiter that still waits although another waiter became the holder meanwhile', async () => {
    const holder = ticket({ key: 'moved up' })
    const [next, last] = (await queueBehind(holder, 2)) as [Ticket, Ticket]
    expect(await evictWaiters(last, async () => other.release(releaseOf(holder)))).toEqual([last.id])
    expect(await store.acquire(last)).toEqual({ tag: 'gone', evicted: true, reason: 'too late' })
    fenceOf(await store.acquire(next))
  })

  test('leaves the new holder alone if the old one leaves between two transactions of one eviction', async () => {
    const holder = ticket({ key: 'a long queue' })
    // One transaction takes 50 of them, from the end of the queue.
    const [next, ...others] = (await queueBehind(holder, 60)) as [Ticket, ...Ticket[]]
    const leave = async () => other.release(releaseOf(holder))
    const evicted = await evictWaiters({ key: holder.key, id: undefined }, leave, { inTransaction: 2 })
    expect([...evicted].sort()).toEqual(others.map(({ id }) => id).sort())
    fenceOf(await store.acquire(next))
  })
})
