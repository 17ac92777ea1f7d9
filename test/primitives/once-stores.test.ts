import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'

test.concurrent.each(Object.entries(places))(
  'on %s each work is done once by three clients that all want it, and failed work is tried again',
  async (store, open) => {
    // As long as a redlock: URL allows. On other stores it is longer than any machine is slow.
    const options = { remember: store === 'redlock' ? '30s' : '10m', ttl: '20s', wait: '50s' }
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
    const place = await open(folder)
    const clients = await Promise.all(['a', 'b', 'c'].map((label) => connect(place.url, { label })))
    try {
      const keys = Array.from({ length: 8 }, (_, index) => `welcome:${index}`)
      const runs = new Map(keys.map((key) => [key, 0]))
      const inside = new Set<string>()
      const work = async (key: string) => {
        expect(inside.has(key)).toBe(false)
        inside.add(key)
        const run = (runs.get(key) ?? 0) + 1
        runs.set(key, run)
        await new Promise((resolve) => setImmediate(resolve))
        inside.delete(key)
        if (key.endsWith('7') && run < 3) throw new Error('not yet')
        return run
      }
      const outcomes = await Promise.allSettled(
        keys.flatMap((key) => clients.map((locks) => locks.once(key, options, () => work(key)))),
      )
      expect([...runs].map(([key, count]) => [key, count])).toEqual(
        keys.map((key) => [key, key.endsWith('7') ? 3 : 1]),
      )
      const values = outcomes.map((one) => (one.status === 'fulfilled' ? one.value.ran : one.reason.message))
      expect(values.filter((value) => value === 'not yet')).toHaveLength(2)
      expect(values.filter((value) => value === true)).toHaveLength(keys.length)
      expect(values.filter((value) => value === false)).toHaveLength(values.length - keys.length - 2)
      for (const locks of clients) {
        expect(await locks.once('welcome:3', options, () => expect.unreachable())).toEqual({ ran: false })
      }
      const keeping = { ...options, keepResult: true }
      const result = { id: 7, text: 'ü'.repeat(7000) }
      const orders = await Promise.all(clients.map((locks) => locks.once('order', keeping, () => result)))
      expect(orders.map(({ ran }) => ran).sort()).toEqual([false, false, true])
      expect(orders.map(({ value }) => value)).toEqual([result, result, result])
      // The work is to be done again before its mark is forgotten.
      const [first] = clients
      expect(await first?.evictAll('welcome:3#done', { reason: 'send it again' })).toHaveLength(1)
      expect(await clients[1]?.once('welcome:3', options, () => 'again')).toEqual({
        ran: true,
        value: 'again',
      })
    } finally {
      await Promise.all(clients.map((locks) => locks.close()))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

// The other tests of killed processes show the part of each store.
test.concurrent.each(['sqlite', 'redis'])(
  'on %s work whose process is killed half-way is done by the next one, when the lease has run out',
  async (store) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
    const place = await (places[store] as (typeof places)[string])(folder)
    const locks = await connect(place.url)
    const child = fork(PROGRAM, [place.url, 'welcome:42'], { execArgv: [] })
    try {
      await once(child, 'message')
      let runs = 0
      const options = { remember: '10m', wait: '50s' }
      const next = Promise.all([1, 2].map(() => locks.once('welcome:42', options, () => (runs += 1))))
      // The promise is awaited below if the test comes that far.
      next.catch(() => {})
      expect(await locks.tryAcquire('welcome:42')).toBeNull()
      expect(runs).toBe(0)
      child.kill('SIGKILL')
      expect(await next).toEqual(expect.arrayContaining([{ ran: true, value: 1 }, { ran: false }]))
    } finally {
      child.kill('SIGKILL')
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

const PROGRAM = await bundled(new URL('once-process.ts', import.meta.url))
