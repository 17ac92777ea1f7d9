import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { type LockManager, webLocks } from '../../src/web-locks/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { places } from '../servers/places.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { held } from './scene.ts'

test.each(Object.entries(places))(
  'on %s two clients that share nothing but the store exclude, share, steal and see one another as two tabs do',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-web-locks-'))
    const place = await open(folder)
    const clients = await Promise.all(
      ['one', 'other'].map((label) => connect(place.url, { label, ttl: '20s' })),
    )
    const [one, other] = clients.map((locks) => webLocks(locks)) as [LockManager, LockManager]
    try {
      let inside = 0
      const alone = async () => {
        inside += 1
        await settled()
        expect(inside).toBe(1)
        inside -= 1
      }
      await Promise.all(
        Array.from({ length: 10 }, (_, at) => (at % 2 === 0 ? one : other).request('r', alone)),
      )

      // Both readers hold at once. Otherwise neither would ever be done.
      const readers = [await held(one, 'r', { mode: 'shared' }), await held(other, 'r', { mode: 'shared' })]
      expect(await other.request('r', { ifAvailable: true }, (lock) => lock)).toBeNull()
      const order: string[] = []
      const writer = one.request('r', () => order.push('writer'))
      await until('the writer waits', async () => (await other.query()).pending.length === 1)
      const late = other.request('r', { mode: 'shared' }, () => order.push('reader'))
      const served = Promise.all([writer, late])
      // If an expectation fails, both requests are still waiting when the locks are closed.
      served.catch(() => {})
      // One query serves all expectations. A waiter may lose its place on etcd while this process stands still for two
      // seconds.
      const { held: holding, pending } = await until('the reader waits behind it', async () => {
        const snapshot = await one.query()
        return snapshot.pending.length === 2 && snapshot
      })
      expect(holding.map(({ mode }) => mode)).toEqual(['shared', 'shared'])
      expect(holding.map(({ clientId }) => clientId.split(':').at(-1)).sort()).toEqual(['one', 'other'])
      expect(pending.map(({ mode, clientId }) => [mode, clientId.split(':').at(-1)])).toEqual([
        ['exclusive', 'one'],
        ['shared', 'other'],
      ])
      expect(order).toEqual([])
      for (const reader of readers) reader.release('')
      await served
      expect(order).toEqual(['writer', 'reader'])

      const robbed = await held(one, 'r')
      const giveUp = new AbortController()
      const waiting = other.request('r', { signal: giveUp.signal }, () => expect.unreachable())
      waiting.catch(() => {})
      await until('it waits', async () => (await one.query()).pending.length === 1)
      giveUp.abort('no more')
      await expect(waiting).rejects.toBe('no more')
      expect(await other.request('r', { steal: true }, () => 'stolen')).toBe('stolen')
      await expect(robbed.result).rejects.toMatchObject({ name: 'AbortError' })
      robbed.release('')
      await until('nothing is left', async () => {
        const { held: left, pending: waits } = await one.query()
        return left.length + waits.length === 0
      })
    } finally {
      await Promise.all(clients.map((locks) => locks.close()))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

test.each(Object.entries(places))(
  'on %s a query sees what was requested before it in the same tick',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-web-locks-'))
    const place = await open(folder)
    const locks = await connect(place.url, { ttl: '20s' })
    const one = webLocks(locks)
    try {
      for (let round = 0; round < 20; round += 1) {
        const [name, free] = [`r${round}`, `free${round}`]
        const holder = await held(one, name)
        let end = () => {}
        const ended = new Promise<void>((resolve) => {
          end = resolve
        })
        const requests = [
          one.request(free, () => ended),
          one.request(`tried${round}`, { ifAvailable: true }, () => ended),
          one.request(`stolen${round}`, { steal: true }, () => ended),
          one.request(name, () => {}),
          one.request(name, { mode: 'shared' }, () => {}),
        ]
        const { held: holding, pending } = await one.query()
        expect(holding.map((lock) => lock.name).sort()).toEqual(
          [name, free, `tried${round}`, `stolen${round}`].sort(),
        )
        expect(pending.map((lock) => lock.name)).toEqual([name, name])
        end()
        holder.release('')
        await Promise.all(requests)
      }
    } finally {
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

test('a query waits for the requests before it also when the event loop is blocked meanwhile', async () => {
  await using server = await startRedis()
  await using locks = await connect(server.url, { ttl: '20s' })
  const one = webLocks(locks)
  await one.request('first', () => {})
  const end = new AbortController()
  const stolen = one.request('stolen', { steal: true }, () => once(end.signal, 'abort'))
  const snapshot = one.query()
  // This takes longer than a query waits for a store that does not answer.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5500)
  expect((await snapshot).held.map(({ name }) => name)).toEqual(['stolen'])
  end.abort()
  await stolen
})
