import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect, isHoldfastError } from '../../src/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

/** Their answers do not prove the order of the queue. */
const UNORDERED = ['etcd', 'redlock']

test.concurrent.each(Object.entries(places))(
  'on %s a reader behind a writer of a circle is told, if the store proves the order of its queue',
  async (name, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-circles-'))
    const place = await open(folder)
    const locks = await connect(place.url, { wait: '5s' })
    const waiters = async (key: string) => (await locks.peek(key))?.queue.length
    try {
      const x = locks.readWrite('x')
      const reader = x.read(async () => {
        await until('the other reader waits', async () => (await waiters('x')) === 2)
        return locks.withLock('z', { wait: '2s' }, () => 'both')
      })
      await until('the reader reads', async () => (await locks.peek('x')) !== null)
      const writer = x.write(() => 'written')
      await until('the writer waits', async () => (await waiters('x')) === 1)
      const holder = locks.withLock('z', () => x.read(() => 'read'))
      const code = UNORDERED.some((one) => name.startsWith(one)) ? 'acquire-timeout' : 'deadlock'
      expect(await reader.catch((error: unknown) => error)).toSatisfy((error) => isHoldfastError(error, code))
      expect(await Promise.all([writer, holder])).toEqual(['written', 'read'])
    } finally {
      await locks.close()
      await place.close()
      rmSync(folder, { recursive: true })
    }
  },
)
