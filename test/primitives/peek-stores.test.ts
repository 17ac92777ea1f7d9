import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

test.concurrent.each(Object.entries(places))(
  'on %s a process sees who holds and who waits, and goes on once the key is free',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-peek-'))
    const place = await open(folder)
    const [one, other] = await Promise.all([
      connect(place.url, { label: 'one' }),
      connect(place.url, { label: 'other' }),
    ])
    try {
      expect(await other.peek('k')).toBeNull()
      await other.waitUntilFree('k', { wait: 0 })
      // Its key begins with the one that is looked at.
      const longer = await one.acquire('k:1')
      expect(await other.peek('k')).toBeNull()
      const held = await one.acquire('k')
      const waiting = other.acquire('k', { wait: '1m' })
      // On etcd a place in the queue ends with its session, and then the waiter queues again.
      const isQueued = async () => {
        const view = await other.peek('k')
        return view?.queue.length === 1 && view
      }
      expect(await until('one waits', isQueued)).toMatchObject({
        holders: [{ id: held.id, state: 'held', owner: { pid: process.pid, label: 'one' } }],
        queue: [{ owner: { label: 'other' } }],
      })
      await until('it waits still', isQueued)
      const refused = other.acquire('k', { maxWaiting: 1 })
      await expect(refused).rejects.toMatchObject({ code: 'queue-full', key: 'k' })
      await until('it left the queue', async () => (await one.peek('k'))?.queue.length === 1)
      const free = other.waitUntilFree('k', { wait: '1m' }).then(() => one.peek('k'))
      await held.release()
      await (await waiting).release()
      expect(await free).toBeNull()
      await longer.release()
    } finally {
      await Promise.all([one.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

test.concurrent.each(Object.entries(places))(
  'on %s a check passes beside other checks, and fails when the store is gone',
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-check-'))
    const place = await open(folder)
    const locks = await connect(place.url)
    try {
      const held = await locks.acquire('k')
      await Promise.all([1, 2, 3].map(() => locks.check({ storeTimeout: '30s' })))
      await held.release()
      await until('nothing is left', async () => (await locks.inspect().next()).done === true)
      await place.close()
      // A file does not go away.
      if (store !== 'sqlite') {
        await expect(locks.check({ storeTimeout: '1s' })).rejects.toMatchObject({ name: 'StoreError' })
      }
    } finally {
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

test.concurrent.each(Object.entries(places))(
  'on %s no more calls keep waiting than may, however many come at once',
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-crowd-'))
    const place = await open(folder)
    const clients = await Promise.all([connect(place.url), connect(place.url)])
    const [one] = clients
    try {
      const held = await one.acquire('k')
      let refused = 0
      const calls = Array.from({ length: 12 }, async (_, index) => {
        try {
          const lease = await clients[index % 2]?.acquire('k', { wait: '2m', maxWaiting: 3 })
          await lease?.release()
        } catch (error) {
          expect(error).toMatchObject({ code: 'queue-full' })
          refused += 1
        }
      })
      // Each server of a redlock has a queue of its own.
      const leastRefused = store === 'redlock' ? 0 : 12 - 3
      await until('each waits or was refused, and the others left the queue', async () => {
        const waiting = (await one.peek('k'))?.queue.length ?? 0
        return refused >= leastRefused && waiting + refused === 12
      })
      if (store !== 'redlock') expect(refused).toBeLessThan(12)
      await held.release()
      await Promise.all(calls)
    } finally {
      await Promise.all(clients.map((locks) => locks.close()))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
