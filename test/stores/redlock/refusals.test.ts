import { Redis } from 'ioredis'
import { describe, expect, test, vi } from 'vitest'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { connect, createLocks, type Locks } from '../../../src/index.ts'
import { openRedlock, redlockStore } from '../../../src/stores/redlock/index.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { sendCommand } from '../../servers/resp.ts'
import { until } from '../../servers/until.ts'
import { clients } from '../redis/clients.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age, startMasters } from './masters.ts'

describe('an argument that is no list of clients, or no option, is refused at once', () => {
  const one = new Redis({ lazyConnect: true })
  test.each([
    [
      'an empty list',
      () => redlockStore([]),
      /^Expected `clients` to be an array of 1 to 31 clients.*, got 0\.$/,
    ],
    ['no list', () => redlockStore(one as never), /^Expected `clients` to be an array.*, got an object/],
    ['no client', () => redlockStore([one, {} as never]), /^Expected each of `clients` to be a `Redis`/],
    [
      'an unknown option',
      () => redlockStore([one], { quorum: 1 } as never),
      /`prefix`, `maxTtl`, `fences`, got `quorum`/,
    ],
    [
      'a prefix that is none',
      () => redlockStore([one], { prefix: 1 as never }),
      /^Expected `prefix` to be a string/,
    ],
    [
      'fences that are none',
      () => redlockStore([one], { fences: 1 as never }),
      /^Expected `fences` to be true or false/,
    ],
    ['no time', () => redlockStore([one], { maxTtl: 'long' }), /^Expected `maxTtl` to be a duration/],
  ])('%s', (_, make, message) => {
    expect(make).toThrow(
      expect.objectContaining({ code: 'invalid-argument', message: expect.stringMatching(message) }),
    )
  })

  test.each([
    ['an empty list', 'redlock:', /got an empty list\.$/],
    ['a part that is no URL', 'redlock:redis://a,redis://', /got a part 2 that is not/],
    ['another kind of server', 'redlock:postgres://user:secret@host/x', /got a part 1 that is not/],
    ['a database that is no number', 'redlock:redis://a/locks', /got a part 1 that is not/],
    ['something else', 'redis://a', /got something else\.$/],
  ])('%s in a url', async (_, url, message) => {
    const error = expect.objectContaining({
      code: 'invalid-argument',
      message: expect.stringMatching(message),
    })
    await expect(openRedlock(url)).rejects.toEqual(error)
    await expect(openRedlock(url)).rejects.not.toMatchObject({ message: expect.stringContaining('secret') })
  })
})

test('an even list works, and says once that an odd one is advised', async () => {
  await using masters = await startMasters(2)
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const stores = [masters.store(), masters.store()] as const
  const mine = ticket()
  fenceOf(await stores[0].acquire(mine))
  expect((await stores[1].acquire(ticket({ patienceMs: 0 }))).tag).toBe('busy')
  await stores[0].release(releaseOf(mine))
  fenceOf(await stores[1].acquire(ticket({ patienceMs: 0 })))
  expect(warned.mock.calls.map(([text]) => text)).toEqual([
    'An odd number of Redis servers is advised: 2 survive the loss of 0, as 1 do.',
  ])
  warned.mockRestore()
  for (const store of stores) await store.close()
})

test.each(Object.entries(clients))('works with %s', async (_, newClient) => {
  await using masters = await startMasters(3)
  const store = redlockStore(masters.urls.map(newClient), { maxTtl: '5m' })
  const woken: string[] = []
  await store.listen?.((wake) => woken.push(wake.tag === 'ticket' ? wake.id : '*'))
  await masters.meet(store)
  const [holder, waiter] = [ticket(), ticket()]
  const fence = fenceOf(await store.acquire(holder))
  expect((await store.acquire(waiter)).tag).toBe('queued')
  expect(await store.renew([holder])).toEqual([{ tag: 'held', fence }])
  await masters.servers[0]?.kill()
  await store.release(releaseOf(holder))
  await until('the waiter was woken', () => woken.includes(waiter.id))
  expect(fenceOf(await store.acquire(waiter)) > fence).toBe(true)
  await masters.servers[0]?.restart()
  await store.release(releaseOf(waiter))
  await store.close()
})

test('a semaphore is refused, with the reason; read and write locks are not', async () => {
  await using masters = await startMasters(3)
  const locks = createLocks(masters.store())
  await expect(locks.semaphore('k', 2).acquire()).rejects.toMatchObject({
    code: 'store-refused',
    key: 'k',
    message: expect.stringMatching(/got a semaphore: .*cannot be counted/) as string,
  })
  const readers = await Promise.all([locks.readWrite('k').acquireRead(), locks.readWrite('k').acquireRead()])
  expect(await locks.readWrite('k').tryAcquireWrite()).toBeNull()
  for (const reader of readers) await reader.release()
  await (await locks.semaphore('k', 1).acquire()).release()
  await locks.close()
})

test('a reader and a writer never hold together, whatever quorum each of them has', async () => {
  await using masters = await startMasters(5)
  const [store, other] = [masters.store(), masters.store()]
  for (let round = 0; round < 10; round += 1) {
    const [away, back] = [masters.servers[round % 5], masters.servers[(round + 2) % 5]]
    const [reader, writer] = [
      ticket({ limit: UNLIMITED, key: `k${round}` }),
      ticket({ patienceMs: 0, key: `k${round}` }),
    ]
    await away?.pause()
    const fence = fenceOf(await store.acquire(reader))
    fenceOf(
      await other.acquire(
        ticket({ limit: UNLIMITED, key: `k${round}`, patienceMs: 0, id: `other ${round}` }),
      ),
    )
    await other.release({ key: `k${round}`, id: `other ${round}`, cancel: false })
    await back?.pause()
    away?.resume()
    await until('it is refused by a quorum', async () => {
      const answer = await Promise.resolve(other.acquire(writer)).catch(() => undefined)
      expect(answer?.tag).not.toBe('held')
      return answer?.tag === 'busy'
    })
    back?.resume()
    await store.release(releaseOf(reader))
    const next = await until('the writer is let in', async () => {
      const answer = await other.acquire(writer)
      return answer.tag === 'held' && answer
    })
    expect(fenceOf(next) > fence).toBe(true)
    await other.release(releaseOf(writer))
  }
  for (const view of [store, other]) await view.close()
})

test('a term longer than `maxTtl` is refused when it is asked for, and when a lease is to be extended', async () => {
  await using masters = await startMasters(3)
  const locks = createLocks(masters.store({ maxTtl: '20s' }), { ttl: '10s' })
  const refusal = {
    code: 'store-refused',
    message: expect.stringMatching(/`maxTtl` of redlockStore\(\).*20000 ms, got/) as string,
  }
  await expect(locks.acquire('k', { ttl: '21s' })).rejects.toMatchObject(refusal)
  await expect(locks.acquire('k', { ttl: '15s', lockDelay: '6s' })).rejects.toMatchObject(refusal)
  const lease = await locks.acquire('k')
  await expect(lease.extend('30s')).rejects.toMatchObject(refusal)
  await lease.extend('20s')
  await lease.release()
  await locks.close()
})

test('a server that is in the list twice is refused on connecting, whatever it is called there', async () => {
  await using masters = await startMasters(2)
  const [first, second] = masters.servers.map(({ port }) => port)
  const urls = [`redis://127.0.0.1:${first}`, `redis://127.0.0.1:${second}`, `redis://localhost:${first}/1`]
  const refusal = {
    code: 'store-refused',
    message: expect.stringMatching(/one server twice: numbers 1 and 3/) as string,
  }
  await expect(connect(`redlock:${urls}`)).rejects.toMatchObject(refusal)
})

test('a replica among the masters is refused on connecting, and takes no part otherwise', async () => {
  await using masters = await startMasters(2)
  await using replica = await startRedis({ replicaOf: masters.servers[0] as { port: number } })
  const urls = [...masters.urls, replica.url]
  // On a busy machine the replica may answer too late for `connect`, which waits a moment for those that are slower than a majority.
  await until('it is refused', async () => {
    const outcome = await connect(`redlock:${urls}`).catch((error: unknown) => error)
    if (outcome instanceof Error) {
      expect(outcome).toMatchObject({
        code: 'store-refused',
        message: expect.stringContaining('got a replica among them') as string,
      })
      return true
    }
    await (outcome as Locks).close()
    return false
  })
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const store = redlockStore(
    urls.map((url) => new Redis(url, { lazyConnect: true })),
    { maxTtl: '2m' },
  )
  fenceOf(await store.acquire(ticket()))
  await until('it was warned of', () => warned.mock.calls.length > 0)
  expect(String(warned.mock.calls[0]?.[0])).toMatch(/server 3 of 3 does not take part: .*replica/)
  warned.mockRestore()
  await store.close()
})

test('a server with another password counts as away, and a warning says so', async () => {
  await using masters = await startMasters(2)
  await using locked = await startRedis({ password: 'sesame' })
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const urls = [...masters.urls, locked.url.replace('sesame', 'sesami')]
  const locks = await connect(`redlock:${urls}`)
  await locks.withLock('k', () => {})
  // Two servers are enough for all calls so far.
  await until('it is warned of', () => warned.mock.calls.length > 0)
  await locked.command('CONFIG', 'SET', 'requirepass', 'sesami')
  await until('it takes part once the password is right', async () => {
    await locks.withLock('k', () => {})
    return (
      Number(await sendCommand({ port: locked.port, password: 'sesami' }, ['EXISTS', 'holdfast:since'])) === 1
    )
  })
  await locks.close()
  expect(warned.mock.calls.map(([text]) => String(text))).toEqual([
    expect.stringMatching(/^Redis server 3 of 3 does not take part: .*user name and password/),
  ])
  warned.mockRestore()
  const most = [masters.urls[0], locked.url.replace('sesame', 'one'), locked.url.replace('sesame', 'two')]
  await expect(connect(`redlock:${most}`)).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('user name and password') as string,
  })
})

test('without fences a lease has none, rather than one that may be wrong', async () => {
  await using masters = await startMasters(3)
  const locks = createLocks(masters.store({ fences: false }))
  const lease = await locks.acquire('k')
  expect(lease.fence).toBe(0n)
  expect(await locks.tryAcquire('k')).toBeNull()
  await lease.extend()
  await lease.release()
  const held = await locks.acquire('k', { minHold: '3s' })
  await held.release()
  expect(await locks.tryAcquire('k')).toBeNull()
  await locks.withLock('k', () => {})
  await locks.close()
})

test('rights that are enough: those of the redis store, and CONFIG and INFO only where a restart is to be noticed or forgiven', async () => {
  const rights =
    'app on >secret ~holdfast:* &holdfast:* -@all +evalsha +eval +subscribe +scan +time +get +mget +set +del +pexpire +pexpiretime +pttl +publish +zadd +zrem +zrank +zrange +zrangebylex'
  await using masters = await startMasters(3, { users: [rights] })
  for (const server of masters.servers) await age(server)
  const locks = await connect(`redlock:${masters.urls.map((url) => url.replace('//', '//app:secret@'))}`)
  const [lease, next] = [await locks.acquire('k'), locks.acquire('k')]
  await lease.extend()
  await lease.release()
  await (await next).release()
  await locks.close()
})
